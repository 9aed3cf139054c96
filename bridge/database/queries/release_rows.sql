-- Gives claimed rows back, uncharged. `uncounted` is 1 for rows that were never handed to Kafka, which
-- then do not count as handed, else 0.
-- Each row is fenced by its own claim.
-- Locks: the rows, in id order; rows locked by somebody else are left out and tried again later.
-- Index: app_outbox_pkey.
with mine as materialized (
    select o.outbox_id
    from unnest(:'outbox_ids'::bigint [], :'claim_numbers'::integer []) as unsent (outbox_id, claim_number)
    inner join :"schema".app_outbox as o on unsent.outbox_id = o.outbox_id
    where
        o.claim_id = (:'claim_ids'::uuid [])[unsent.claim_number]
        and case when o.status = 'PROCESSING' then true else false end
    order by o.outbox_id
    for update of o skip locked
)

update :"schema".app_outbox as o
set
    status = 'PENDING',
    claim_id = null,
    claim_count = greatest(o.claim_count - :'uncounted'::integer, 0),
    locked_by = null,
    locked_at = null,
    updated_at = now()
from mine
where o.outbox_id = mine.outbox_id
