-- Gives claimed rows back that were certainly not sent: uncharged, and not counted as handed to Kafka.
-- Locks: the rows, in id order. Index: app_outbox_pkey.
with mine as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where
        o.outbox_id = any(:'outbox_ids'::bigint [])
        and o.claim_id = any(:'claim_ids'::uuid [])
        and o.status = 'PROCESSING'
    order by o.outbox_id
    for update of o
)

update :"schema".app_outbox as o
set
    status = 'PENDING',
    claim_id = null,
    claim_count = greatest(o.claim_count - 1, 0),
    locked_by = null,
    locked_at = null,
    updated_at = now()
from mine
where o.outbox_id = mine.outbox_id
