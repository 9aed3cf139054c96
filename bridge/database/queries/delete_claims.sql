-- Deletes claims whose last row is settled.
-- Locks: the claim rows. Index: app_outbox_claim_pkey.
delete from :"schema".app_outbox_claim
where claim_id = any(:'claim_ids'::uuid [])
