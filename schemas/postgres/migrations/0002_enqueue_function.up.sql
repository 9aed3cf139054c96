-- outbox_enqueue: what `bridge.enqueue` does, for every language that can run SQL.
--
-- Runs with the caller's rights (it needs INSERT and SELECT on app_outbox) and inside the caller's
-- transaction. Types, functions and operators are named in full, because a `set search_path` on the
-- function would cost every call, and the caller's search_path must neither break nor subvert it.
-- Left out for the same reason: IN, BETWEEN, CASE x WHEN and IS DISTINCT FROM, which look up `=`.
--
-- SQLSTATEs: OB001 a field is unusable, OB002 the key already stands for another event.
create function :"schema".outbox_enqueue(
    message_key text,
    event_type text,
    destination text,
    payload json,
    headers jsonb default '{}',
    ordering_key text default null,
    not_before timestamptz default null,
    on_duplicate text default 'error',
    out outbox_id bigint,
    out created boolean
)
language plpgsql as $$
#variable_conflict use_column
declare
    wrong pg_catalog.text;
    advice pg_catalog.text;
    bytes pg_catalog.int8;
    most pg_catalog.int8;
    stored pg_catalog.record;
    same pg_catalog.bool;
begin
    if outbox_enqueue.message_key is null or outbox_enqueue.message_key operator(pg_catalog.=) '' then
        wrong := 'message_key is empty';
        advice := 'Give a business key that is the same whenever the same event is enqueued again.';
    elsif pg_catalog.length(outbox_enqueue.message_key) operator(pg_catalog.>) 200 then
        wrong := pg_catalog.format(
            'message_key has %s characters', pg_catalog.length(outbox_enqueue.message_key)
        );
        advice := 'The limit is 200; hash the long part.';
    elsif outbox_enqueue.event_type is null or outbox_enqueue.event_type operator(pg_catalog.=) '' then
        wrong := 'event_type is empty';
        advice := 'Say what happened, for example order.created.';
    elsif pg_catalog.length(outbox_enqueue.event_type) operator(pg_catalog.>) 100 then
        wrong := pg_catalog.format(
            'event_type has %s characters', pg_catalog.length(outbox_enqueue.event_type)
        );
        advice := 'The limit is 100.';
    elsif outbox_enqueue.destination is null or outbox_enqueue.destination operator(pg_catalog.=) '' then
        wrong := 'destination is empty';
        advice := 'Name where it goes: a topic, or a name that the relay''s routes map to one.';
    elsif pg_catalog.length(outbox_enqueue.destination) operator(pg_catalog.>) 200 then
        wrong := pg_catalog.format(
            'destination has %s characters', pg_catalog.length(outbox_enqueue.destination)
        );
        advice := 'The limit is 200.';
    elsif outbox_enqueue.ordering_key operator(pg_catalog.=) '' then
        wrong := 'ordering_key is empty';
        advice := 'Leave it out (null) where no order is needed.';
    elsif pg_catalog.length(outbox_enqueue.ordering_key) operator(pg_catalog.>) 200 then
        wrong := pg_catalog.format(
            'ordering_key has %s characters', pg_catalog.length(outbox_enqueue.ordering_key)
        );
        advice := 'The limit is 200; hash the long part.';
    elsif not pg_catalog.isfinite(outbox_enqueue.not_before) then
        wrong := 'not_before is infinite';
        advice := 'Give a time, or leave it out.';
    elsif outbox_enqueue.on_duplicate is null or not (
        outbox_enqueue.on_duplicate operator(pg_catalog.=) any (array['error', 'absorb', 'strict'])
    ) then
        wrong := pg_catalog.format('on_duplicate is %L', outbox_enqueue.on_duplicate);
        advice := 'Use error (the default), absorb or strict.';
    elsif pg_catalog.jsonb_typeof(outbox_enqueue.headers) operator(pg_catalog.<>) 'object' then
        wrong := 'headers are not a JSON object';
        advice := 'Give an object of strings, for example {"tenant": "a"}.';
    elsif outbox_enqueue.headers operator(pg_catalog.<>) '{}'::pg_catalog.jsonb then
        select
            case
                when h.key operator(pg_catalog.=) '' then 'a header has no name'
                when pg_catalog.jsonb_typeof(h.value) operator(pg_catalog.<>) 'string'
                    then pg_catalog.format('header %L is not a string', h.key)
                else pg_catalog.format('header %L is written by the relay itself', h.key)
            end
        into wrong
        from pg_catalog.jsonb_each(outbox_enqueue.headers) as h
        where
            h.key operator(pg_catalog.=) ''
            or pg_catalog.jsonb_typeof(h.value) operator(pg_catalog.<>) 'string'
            or pg_catalog.lower(h.key collate pg_catalog."C") operator(pg_catalog.=) any (
                array['outbox-id', 'event-type', 'idempotency-key', 'content-type', 'outbox-attempt']
            )
        limit 1;
        advice := 'Headers are an object of strings; take another name for a reserved one.';
    end if;
    if wrong is null and outbox_enqueue.payload is not null then
        bytes := pg_catalog.octet_length(outbox_enqueue.payload::pg_catalog.text);
        most := coalesce(
            nullif(pg_catalog.current_setting('outbox_bridge.max_payload_bytes', true), ''), '1000000'
        )::pg_catalog.int8;
        if bytes operator(pg_catalog.>) most then
            wrong := pg_catalog.format('payload has %s bytes', bytes);
            advice := pg_catalog.format(
                'The limit is %s (setting outbox_bridge.max_payload_bytes); store the content elsewhere '
                'and send a reference.',
                most
            );
        end if;
    end if;
    if wrong is not null then
        raise exception using errcode = 'OB001', message = wrong, hint = advice;
    end if;

    -- More than one round only where the row that absorbed ours is deleted in between.
    for attempt in 1..3 loop
        insert into :"schema".app_outbox as o
        (message_key, event_type, destination, ordering_key, headers, payload_json, next_run_at)
        values (
            outbox_enqueue.message_key,
            outbox_enqueue.event_type,
            outbox_enqueue.destination,
            outbox_enqueue.ordering_key,
            coalesce(outbox_enqueue.headers, '{}'),
            outbox_enqueue.payload,
            coalesce(outbox_enqueue.not_before, pg_catalog.now())
        )
        on conflict on constraint app_outbox_message_key_key do nothing
        returning o.outbox_id into outbox_id;
        if found then
            created := true;
            return;
        end if;

        select
            o.outbox_id,
            o.event_type,
            o.destination,
            o.ordering_key,
            o.payload_json,
            o.payload_bytes
        into stored
        from :"schema".app_outbox as o
        where o.message_key operator(pg_catalog.=) outbox_enqueue.message_key;
        exit when found;
    end loop;
    if stored is null then
        raise exception using
            errcode = 'serialization_failure',
            message = pg_catalog.format(
                'the row that holds message_key %L vanished three times', outbox_enqueue.message_key
            ),
            hint = 'Roll back and run the transaction again.';
    end if;

    if outbox_enqueue.on_duplicate operator(pg_catalog.<>) 'absorb' then
        if stored.destination operator(pg_catalog.<>) outbox_enqueue.destination then
            wrong := 'destination';
        elsif stored.event_type operator(pg_catalog.<>) outbox_enqueue.event_type then
            wrong := 'event_type';
        elsif coalesce(stored.ordering_key, '') operator(pg_catalog.<>)
            coalesce(outbox_enqueue.ordering_key, '')
        then
            wrong := 'ordering_key';
        elsif outbox_enqueue.on_duplicate operator(pg_catalog.=) 'strict' then
            if stored.payload_bytes is not null then
                same := false;
            elsif stored.payload_json is null or outbox_enqueue.payload is null then
                same := stored.payload_json is null and outbox_enqueue.payload is null;
            else
                same := stored.payload_json::pg_catalog.text
                    operator(pg_catalog.=) outbox_enqueue.payload::pg_catalog.text;
                if not same then
                    begin
                        same := stored.payload_json::pg_catalog.jsonb
                            operator(pg_catalog.=) outbox_enqueue.payload::pg_catalog.jsonb;
                    exception when data_exception or statement_too_complex or program_limit_exceeded then
                        -- Valid json that jsonb cannot hold, such as \u0000: the texts decide.
                        same := false;
                    end;
                end if;
            end if;
            if not same then
                wrong := 'payload';
            end if;
        end if;
        if wrong is not null then
            raise exception using
                errcode = 'OB002',
                message = pg_catalog.format(
                    'message_key %L already stands for another event: its %s differs (outbox_id %s)',
                    outbox_enqueue.message_key, wrong, stored.outbox_id
                ),
                hint = 'Make the key unique for each event, or pass on_duplicate => ''absorb''.';
        end if;
    end if;
    outbox_id := stored.outbox_id;
    created := false;
end
$$;

comment on function :"schema".outbox_enqueue(
    text, text, text, json, jsonb, text, timestamptz, text
) is
'Enqueues one message inside the caller''s transaction; a known message_key is absorbed (created is false).';
