-- Counts, of an id range, the rows looked at, the PENDING ones without queue entry, the PROCESSING ones
-- without claim and the FAILED ones that are not in the list: what `repair` would put right.
-- Locks: nothing. Index: app_outbox_pkey; reads the queue as a whole, once.
with looked as materialized (
    select
        o.outbox_id,
        o.status,
        o.next_run_at,
        o.claim_id
    from :"schema".app_outbox as o
    where o.outbox_id between :'first_id'::bigint and :'last_id'::bigint
),

unqueued as (
    -- Sets, never a join: a wrong guess must not make it read the queue for each row.
    select
        pending.outbox_id,
        pending.next_run_at
    from looked as pending
    where pending.status = 'PENDING'
    except
    select
        q.outbox_id,
        q.next_run_at
    from :"schema".app_outbox_queue as q
    where q.outbox_id between :'first_id'::bigint and :'last_id'::bigint
)

select
    (select count(*) from looked) as looked_at,
    (select count(*) from unqueued) as unqueued,
    (
        select count(*)
        from looked as taken
        where
            taken.status = 'PROCESSING'
            and not exists (
                select from :"schema".app_outbox_claim as c where c.claim_id = taken.claim_id
                offset 0 -- a look-up for each row, never a join
            )
    ) as unclaimed,
    (
        select count(*)
        from looked as failed
        where
            failed.status = 'FAILED'
            and not exists (
                select from :"schema".app_outbox_failed as f where f.outbox_id = failed.outbox_id
                offset 0
            )
    ) as unlisted
