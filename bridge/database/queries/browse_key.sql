-- Reads the row of one message key, in the shape of browse_newest.
-- Locks: nothing. Index: app_outbox_message_key_key.
select
    count(*) over () as looked,
    count(*) over () as matched,
    o.outbox_id as lowest,
    null::timestamptz as earliest,
    o.outbox_id,
    o.status,
    o.destination,
    o.event_type,
    o.message_key,
    o.ordering_key,
    o.created_at,
    to_json(o.next_run_at) #>> '{}' as next_run_at,
    o.retry_count,
    o.max_retry_count,
    o.claim_count,
    o.locked_by,
    o.sent_at,
    o.last_error_code,
    o.last_error_msg,
    true as matches
from :"schema".app_outbox as o
where
    o.message_key = :'message_key'::text
    and (:'statuses'::text [] is null or o.status = any(:'statuses'::text []))
    and (:'destination'::text is null or o.destination = :'destination'::text)
    and (:'event_type'::text is null or o.event_type = :'event_type'::text)
    and (:'ordering_key'::text is null or o.ordering_key = :'ordering_key'::text)
    and (:'error_code'::text is null or o.last_error_code = :'error_code'::text)
    and (:'created_from'::timestamptz is null or o.created_at >= :'created_from'::timestamptz)
    and (:'created_to'::timestamptz is null or o.created_at < :'created_to'::timestamptz)
    and (:'trace_pattern'::text is null or o.headers ->> 'traceparent' like :'trace_pattern'::text)
