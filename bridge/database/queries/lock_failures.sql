-- Locks rows whose attempt failed and tells how many attempts each has used and may use.
-- Locks: the rows, in id order; rows locked by somebody else are left out and tried again later.
-- Index: app_outbox_pkey.
select
    o.outbox_id,
    o.retry_count,
    o.max_retry_count
from :"schema".app_outbox as o
where
    o.outbox_id = any(:'outbox_ids'::bigint [])
    and o.claim_id = any(:'claim_ids'::uuid [])
    and o.status = 'PROCESSING'
order by o.outbox_id
for update of o skip locked
