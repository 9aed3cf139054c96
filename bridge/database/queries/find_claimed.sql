-- Tells which of the given rows are still PROCESSING under their own claim.
-- Locks: nothing. Index: app_outbox_pkey.
select
    o.outbox_id,
    attempt.claim_number
from unnest(:'outbox_ids'::bigint [], :'claim_numbers'::integer []) as attempt (outbox_id, claim_number)
inner join :"schema".app_outbox as o on attempt.outbox_id = o.outbox_id
where
    o.claim_id = (:'claim_ids'::uuid [])[attempt.claim_number]
    and case when o.status = 'PROCESSING' then true else false end
