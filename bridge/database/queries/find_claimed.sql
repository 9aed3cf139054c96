-- Tells which of the given rows are still PROCESSING under one of the given claims.
-- Locks: nothing. Index: app_outbox_pkey.
select o.outbox_id
from :"schema".app_outbox as o
where
    o.outbox_id = any(:'outbox_ids'::bigint [])
    and o.claim_id = any(:'claim_ids'::uuid [])
    and o.status = 'PROCESSING'
