-- Tells which of the given acknowledged rows did not become SENT under their claim.
-- Locks: nothing. Index: app_outbox_pkey.
select ack.outbox_id
from unnest(:'outbox_ids'::bigint [], :'claim_numbers'::integer []) as ack (outbox_id, claim_number)
where not exists (
    select
    from :"schema".app_outbox as o
    where
        o.outbox_id = ack.outbox_id
        and o.claim_id = (:'claim_ids'::uuid [])[ack.claim_number]
        and o.status = 'SENT'
    offset 0 -- a look-up for each row, never a join
)
