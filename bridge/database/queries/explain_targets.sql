-- Tells of each given row whether an action would change it: `refused` is null, or says why not. A row
-- that is not there has no status.
-- Locks: nothing. Index: app_outbox_pkey.
select
    asked.outbox_id,
    o.status,
    o.destination,
    o.event_type,
    o.message_key,
    o.ordering_key,
    o.created_at,
    o.claim_count,
    o.last_error_code,
    :"schema".app_outbox_obstacle(:'action'::text, asked.outbox_id, :'options'::jsonb) as refused
from (
    select distinct u.outbox_id
    from unnest(:'outbox_ids'::bigint []) as u (outbox_id)
) as asked
left join :"schema".app_outbox as o on asked.outbox_id = o.outbox_id
order by asked.outbox_id
