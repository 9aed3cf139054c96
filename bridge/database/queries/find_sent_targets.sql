-- Finds SENT rows to be replayed, by ascending id, without those that carry this replay id already. Null
-- filters match everything.
-- Locks: nothing. Index: app_outbox_pkey, walked until enough rows match, or
-- app_outbox_event_type_created_at_idx; what matches rarely reads far, since status is in no index on purpose.
select
    o.outbox_id,
    o.status,
    o.destination,
    o.event_type,
    o.message_key,
    o.ordering_key,
    o.created_at,
    o.claim_count,
    o.last_error_code
from :"schema".app_outbox as o
where
    o.outbox_id > :'after'::bigint
    and o.outbox_id <= :'until'::bigint
    and o.status = any(:'statuses'::text [])
    and (:'destination'::text is null or o.destination = :'destination'::text)
    and (:'event_type'::text is null or o.event_type = :'event_type'::text)
    and (:'key_pattern'::text is null or o.message_key like :'key_pattern'::text)
    and (:'ordering_key'::text is null or o.ordering_key = :'ordering_key'::text)
    and (:'error_code'::text is null or o.last_error_code = :'error_code'::text)
    and (:'created_from'::timestamptz is null or o.created_at >= :'created_from'::timestamptz)
    and (:'created_to'::timestamptz is null or o.created_at < :'created_to'::timestamptz)
    and (
        :'trace_id'::text is null
        or substr(o.headers ->> 'traceparent', 4, 32) = :'trace_id'::text
    )
    and (
        :'replay_id'::text is null
        or coalesce(o.headers ->> 'outbox-replay-id', '') <> :'replay_id'::text
    )
order by o.outbox_id
limit :'row_limit'::integer
