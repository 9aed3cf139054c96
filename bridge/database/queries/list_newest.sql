-- Lists rows of any status, newest first, between two ids (both left out).
-- Locks: nothing. Index: app_outbox_pkey, walked until enough rows match; what matches rarely
-- reads far, since status is in no index on purpose.
select
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
    o.last_error_msg
from :"schema".app_outbox as o
where
    o.outbox_id > :'after'::bigint
    and o.outbox_id < :'before'::bigint
    and (:'statuses'::text [] is null or o.status = any(:'statuses'::text []))
    and (:'destinations'::text [] is null or o.destination = any(:'destinations'::text []))
    and (:'event_types'::text [] is null or o.event_type = any(:'event_types'::text []))
order by o.outbox_id desc
limit :'row_limit'::integer
