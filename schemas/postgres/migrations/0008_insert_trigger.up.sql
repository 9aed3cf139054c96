-- One trigger for an insert, instead of three.
--
-- PostgreSQL reads the condition of a trigger from its text again for every statement. Of what a single
-- INSERT cost beyond the row itself, the long condition of app_outbox_content took a third. So its rules
-- stand in the query that fills the queue, which is planned once per session; what is not an ordinary new
-- row (it breaks a rule, or is not PENDING) goes to a function. The rules still run at the end of the
-- statement, and refuse with the same errors.

-- What a row may hold, for inserts and updates alike. With the caller's rights and open to everybody: it
-- only looks at its arguments.
create function :"schema".app_outbox_check_content(
    message_key varchar,
    event_type varchar,
    destination varchar,
    ordering_key varchar,
    headers jsonb,
    has_two_payloads boolean,
    max_retry_count integer,
    retry_count integer
)
returns void
language plpgsql as $$
declare
    fault pg_catalog.text := case
        when message_key operator(pg_catalog.=) '' then 'message_key is empty'
        when event_type operator(pg_catalog.=) '' then 'event_type is empty'
        when destination operator(pg_catalog.=) '' then 'destination is empty'
        when ordering_key operator(pg_catalog.=) '' then 'ordering_key is empty'
        when pg_catalog.jsonb_typeof(headers) operator(pg_catalog.<>) 'object'
            then 'headers are not a JSON object'
        when max_retry_count operator(pg_catalog.<) 0 or retry_count operator(pg_catalog.<) 0
            then 'a retry count is negative'
        when has_two_payloads then 'both payload_json and payload_bytes are given'
    end;
begin
    if fault is not null then
        raise exception using
            errcode = 'check_violation',
            message = pg_catalog.concat('app_outbox: ', fault),
            hint = 'Keys and names are not empty, headers are an object of strings, a row has one payload at most.',
            table = 'app_outbox';
    end if;
end
$$;

create or replace function :"schema".app_outbox_refuse_content() returns trigger
language plpgsql as $$
begin
    perform :"schema".app_outbox_check_content(
        new.message_key,
        new.event_type,
        new.destination,
        new.ordering_key,
        new.headers,
        new.payload_json is not null and new.payload_bytes is not null,
        new.max_retry_count,
        new.retry_count
    );
    return null;
end
$$;

-- A new row that breaks a rule is refused; one that is not PENDING (a restore, a backfill) is listed or
-- counted. Returns whether it belongs in the queue.
create function :"schema".app_outbox_take_unusual(
    outbox_id bigint,
    status varchar,
    message_key varchar,
    event_type varchar,
    destination varchar,
    ordering_key varchar,
    headers jsonb,
    has_two_payloads boolean,
    max_retry_count integer,
    retry_count integer,
    last_error_code varchar
)
returns boolean
language plpgsql as $$
#variable_conflict use_variable
begin
    perform :"schema".app_outbox_check_content(
        message_key,
        event_type,
        destination,
        ordering_key,
        headers,
        has_two_payloads,
        max_retry_count,
        retry_count
    );
    if status operator(pg_catalog.=) 'FAILED' then
        insert into :"schema".app_outbox_failed (outbox_id, destination, event_type, error_code)
        values (outbox_id, destination, event_type, last_error_code)
        on conflict do nothing;
    elsif status operator(pg_catalog.=) 'SENT' or status operator(pg_catalog.=) 'CANCELLED' then
        insert into :"schema".app_outbox_counter (destination, status, delta)
        values (destination, status, 1);
    end if;
    return status operator(pg_catalog.=) 'PENDING';
end
$$;

-- Only the insert trigger calls it, with the owner's rights.
revoke execute on function :"schema".app_outbox_take_unusual(
    bigint, varchar, varchar, varchar, varchar, varchar, jsonb, boolean, integer, integer, varchar
) from public;

-- As before, and the rules. Null where a rule does not apply counts as kept, as in a trigger's condition.
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
    where case
        when
            n.status operator(pg_catalog.<>) 'PENDING'
            or n.message_key operator(pg_catalog.=) ''
            or n.event_type operator(pg_catalog.=) ''
            or n.destination operator(pg_catalog.=) ''
            or n.ordering_key operator(pg_catalog.=) ''
            or pg_catalog.jsonb_typeof(n.headers) operator(pg_catalog.<>) 'object'
            or (n.payload_json is not null and n.payload_bytes is not null)
            or n.max_retry_count operator(pg_catalog.<) 0
            or n.retry_count operator(pg_catalog.<) 0
            then :"schema".app_outbox_take_unusual(
                n.outbox_id,
                n.status,
                n.message_key,
                n.event_type,
                n.destination,
                n.ordering_key,
                n.headers,
                n.payload_json is not null and n.payload_bytes is not null,
                n.max_retry_count,
                n.retry_count,
                n.last_error_code
            )
        else true
    end;
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

-- Without the insert.
drop trigger app_outbox_content on :"schema".app_outbox;

create trigger app_outbox_content
after update of
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

-- Nothing is left for it to do. A relay of schema version 7 looks for the name, so it stays for one version
-- more, where it costs an insert nothing.
drop trigger app_outbox_after_insert_settled on :"schema".app_outbox;

create trigger app_outbox_after_insert_settled
after truncate on :"schema".app_outbox
for each statement when (false)
execute function :"schema".app_outbox_after_insert_settled();
