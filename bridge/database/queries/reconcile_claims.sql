-- Turns PROCESSING rows of an id range whose claim does not exist back to PENDING, uncharged. A row
-- that somebody claims meanwhile has another claim_id by then and is left alone.
-- Locks: those rows. Index: app_outbox_pkey, app_outbox_claim_pkey.
with orphan as materialized (
    select
        o.outbox_id,
        o.claim_id
    from :"schema".app_outbox as o
    where
        o.outbox_id between :'first_id'::bigint and :'last_id'::bigint
        and o.status = 'PROCESSING'
        and not exists (select from :"schema".app_outbox_claim as c where c.claim_id = o.claim_id)
)

update :"schema".app_outbox as o
set
    status = 'PENDING',
    last_error_code = :'error_code',
    last_error_msg = :'error_message',
    locked_by = null,
    locked_at = null,
    updated_at = now()
from orphan
where
    o.outbox_id = orphan.outbox_id
    and o.claim_id is not distinct from orphan.claim_id
    and o.status = 'PROCESSING'
