-- Counts PENDING and PROCESSING rows by destination, how many of them are due, and since when
-- (seconds) the longest waiting one could have gone out: a row scheduled for later waits from that
-- time on, one that was tried before from its enqueueing on.
-- Locks: nothing. Index: app_outbox_pkey; reads queue and claims as a whole.
-- Exact in one snapshot: every PENDING row has a queue entry and every PROCESSING row a claim, each
-- written by the transaction that changed the row; entries and ids that have become stale are
-- sorted out by the row's own status.
with candidate as (
    select q.outbox_id
    from :"schema".app_outbox_queue as q
    union
    select claimed.outbox_id
    from :"schema".app_outbox_claim as c
    cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
),

counted as (
    select
        o.destination,
        count(*) filter (where o.status = 'PENDING') as pending,
        count(*) filter (where o.status = 'PROCESSING') as processing,
        count(*) filter (where o.status = 'PENDING' and o.next_run_at <= statement_timestamp()) as due,
        min(
            case when o.claim_count = 0 then greatest(o.created_at, o.next_run_at) else o.created_at end
        ) filter (
            where o.status = 'PROCESSING' or o.next_run_at <= statement_timestamp() or o.claim_count > 0
        ) as since
    from candidate
    inner join :"schema".app_outbox as o on candidate.outbox_id = o.outbox_id
    where o.status in ('PENDING', 'PROCESSING')
    group by o.destination
)

select
    counted.destination,
    counted.pending,
    counted.processing,
    counted.due,
    case
        when isfinite(counted.since)
            then greatest(0, extract(epoch from statement_timestamp() - counted.since))::float8
    end as oldest_seconds
from counted
