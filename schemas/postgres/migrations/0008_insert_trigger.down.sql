drop trigger app_outbox_after_insert_settled on :"schema".app_outbox;

create trigger app_outbox_after_insert_settled
after insert on :"schema".app_outbox
for each row when (new.status <> 'PENDING')
execute function :"schema".app_outbox_after_insert_settled();

drop trigger app_outbox_content on :"schema".app_outbox;

create trigger app_outbox_content
after insert or update of
message_key, event_type, destination, ordering_key, headers, payload_json, payload_bytes, max_retry_count
on :"schema".app_outbox
for each row when (
    new.message_key = ''
    or new.event_type = ''
    or new.destination = ''
    or new.ordering_key = ''
    or jsonb_typeof(new.headers) <> 'object'
    or (new.payload_json is not null and new.payload_bytes is not null)
    or new.max_retry_count < 0
    or new.retry_count < 0
)
execute function :"schema".app_outbox_refuse_content();

create or replace function :"schema".app_outbox_after_insert() returns trigger
language plpgsql security definer as $$
begin
    insert into :"schema".app_outbox_queue (outbox_id, destination, next_run_at, lane, key_hash)
    select
        n.outbox_id,
        n.destination,
        n.next_run_at,
        (pg_catalog.hashtext(n.ordering_key) operator(pg_catalog.&) 63)::pg_catalog.int2,
        pg_catalog.hashtext(n.ordering_key)
    from new_rows as n
    where n.status operator(pg_catalog.=) 'PENDING';
    if not pg_catalog.pg_try_advisory_xact_lock_shared(:'wake_class', 0) then
        if coalesce(pg_catalog.current_setting('outbox_bridge.notify', true), 'on')
            operator(pg_catalog.<>) 'off'
        then
            perform pg_catalog.pg_notify(:'wake_channel', '');
        end if;
    end if;
    return null;
end
$$;

create or replace function :"schema".app_outbox_refuse_content() returns trigger
language plpgsql as $$
begin
    raise exception using
        errcode = 'check_violation',
        message = pg_catalog.concat('app_outbox: ', case
            when new.message_key operator(pg_catalog.=) '' then 'message_key is empty'
            when new.event_type operator(pg_catalog.=) '' then 'event_type is empty'
            when new.destination operator(pg_catalog.=) '' then 'destination is empty'
            when new.ordering_key operator(pg_catalog.=) '' then 'ordering_key is empty'
            when pg_catalog.jsonb_typeof(new.headers) operator(pg_catalog.<>) 'object'
                then 'headers are not a JSON object'
            when new.retry_count operator(pg_catalog.<) 0 or new.max_retry_count operator(pg_catalog.<) 0
                then 'a retry count is negative'
            else 'both payload_json and payload_bytes are given'
        end),
        hint = 'Keys and names are not empty, headers are an object of strings, a row has one payload at most.',
        table = 'app_outbox';
end
$$;

drop function :"schema".app_outbox_take_unusual(
    bigint, varchar, varchar, varchar, varchar, varchar, jsonb, boolean, integer, integer, varchar
);

drop function :"schema".app_outbox_check_content(
    varchar, varchar, varchar, varchar, jsonb, boolean, integer, integer
);
