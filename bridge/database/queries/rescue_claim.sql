-- Takes a claim back: its rows that are still PROCESSING become PENDING, uncharged. claim_id stays, so
-- that a late acknowledgement still marks SENT until somebody claims, edits or cancels the row.
-- Locks: the claim and the rows, both with SKIP LOCKED (two rescuers, a settle under way); a claim
-- with a row locked by somebody else stays for the next time.
-- Index: app_outbox_claim_pkey, app_outbox_pkey.
with claim as materialized (
    select
        c.claim_id,
        c.outbox_ids
    from :"schema".app_outbox_claim as c
    where c.claim_id = :'claim_id'::uuid
    for update of c skip locked
),

locked as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where
        o.outbox_id = any((select claim.outbox_ids from claim)::bigint [])
        and o.claim_id = :'claim_id'::uuid
        and o.status = 'PROCESSING'
    order by o.outbox_id
    for update of o skip locked
),

back as (
    update :"schema".app_outbox as o
    set
        status = 'PENDING',
        last_error_code = :'error_code',
        last_error_msg = :'error_message',
        locked_by = null,
        locked_at = null,
        updated_at = now()
    from locked
    where o.outbox_id = locked.outbox_id
    returning o.outbox_id
),

remaining as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where
        o.outbox_id = any((select claim.outbox_ids from claim)::bigint [])
        and o.claim_id = :'claim_id'::uuid
        and o.status = 'PROCESSING'
        and not exists (select from locked where locked.outbox_id = o.outbox_id)
),

closed as (
    delete from :"schema".app_outbox_claim as c
    using claim
    where c.claim_id = claim.claim_id and not exists (select from remaining)
)

select
    (select count(*) from back) as rescued,
    (select count(*) from remaining) as remaining
