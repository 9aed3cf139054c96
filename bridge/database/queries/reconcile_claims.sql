-- Turns PROCESSING rows of an id range whose claim does not exist back to PENDING, uncharged.
-- Locks: those rows. Index: app_outbox_pkey, app_outbox_claim_pkey.
update :"schema".app_outbox as o
set
    status = 'PENDING',
    last_error_code = :'error_code',
    last_error_msg = :'error_message',
    locked_by = null,
    locked_at = null,
    updated_at = now()
where
    o.outbox_id between :'first_id'::bigint and :'last_id'::bigint
    and o.status = 'PROCESSING'
    and not exists (select from :"schema".app_outbox_claim as c where c.claim_id = o.claim_id)
