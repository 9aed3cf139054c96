-- Locks rows whose attempt failed and tells how many attempts each has used and may use, its key, and
-- whether an earlier row of the key holds it. Each row is fenced by the claim of its own attempt.
-- Message key and traceparent are for the log.
-- Locks: the rows, in id order; rows locked by somebody else are left out and tried again later.
-- Index: app_outbox_pkey, app_outbox_hold_pkey.
select
    o.outbox_id,
    failure.claim_number,
    o.retry_count,
    o.max_retry_count,
    o.destination,
    o.ordering_key,
    exists(
        select
        from :"schema".app_outbox_hold as h
        where
            h.destination = o.destination
            and h.ordering_key = o.ordering_key
            and h.outbox_id < o.outbox_id
            and h.released_at is null
        offset 0 -- a look-up for each row, never a join
    ) as is_held,
    o.message_key,
    o.headers ->> 'traceparent' as traceparent
from unnest(:'outbox_ids'::bigint [], :'claim_numbers'::integer []) as failure (outbox_id, claim_number)
inner join :"schema".app_outbox as o on failure.outbox_id = o.outbox_id
where
    o.claim_id = (:'claim_ids'::uuid [])[failure.claim_number]
    and case when o.status = 'PROCESSING' then true else false end
order by o.outbox_id
for update of o skip locked
