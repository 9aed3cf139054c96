-- Lists rows that are PENDING, PROCESSING or FAILED, by way of the side tables: newest first where
-- direction is -1, oldest first where it is 1, between two ids (both left out).
-- Locks: nothing. Index: app_outbox_pkey; reads the narrow side tables as a whole.
with candidate as (
    select q.outbox_id
    from :"schema".app_outbox_queue as q
    where 'PENDING' = any(:'statuses'::text [])
    union
    select claimed.outbox_id
    from :"schema".app_outbox_claim as c
    cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
    where 'PROCESSING' = any(:'statuses'::text [])
    union
    select f.outbox_id
    from :"schema".app_outbox_failed as f
    where 'FAILED' = any(:'statuses'::text [])
)

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
from candidate
inner join :"schema".app_outbox as o on candidate.outbox_id = o.outbox_id
where
    o.outbox_id > :'after'::bigint
    and o.outbox_id < :'before'::bigint
    and o.status = any(:'statuses'::text [])
    and (:'destinations'::text [] is null or o.destination = any(:'destinations'::text []))
    and (:'event_types'::text [] is null or o.event_type = any(:'event_types'::text []))
order by o.outbox_id * :'direction'::integer
limit :'row_limit'::integer
