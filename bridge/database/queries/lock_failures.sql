-- Locks rows whose attempt failed and tells how many attempts each has used and may use. Each row is
-- fenced by the claim of its own attempt.
-- Locks: the rows, in id order; rows locked by somebody else are left out and tried again later.
-- Index: app_outbox_pkey.
select
    o.outbox_id,
    failure.claim_number,
    o.retry_count,
    o.max_retry_count
from unnest(:'outbox_ids'::bigint [], :'claim_numbers'::integer []) as failure (outbox_id, claim_number)
inner join :"schema".app_outbox as o on failure.outbox_id = o.outbox_id
where
    o.claim_id = (:'claim_ids'::uuid [])[failure.claim_number]
    and case when o.status = 'PROCESSING' then true else false end
order by o.outbox_id
for update of o skip locked
