-- Counts for each relay the rows that it has claimed and the lanes that it owns, and tells when the
-- oldest of its claims was made.
-- Locks: nothing. Index: none; claims and lanes are few.
select
    r.relay_id,
    coalesce(claimed.rows_claimed, 0) as rows_claimed,
    claimed.oldest_claim_at,
    (select count(*) from :"schema".app_outbox_lane as l where l.relay_id = r.relay_id) as lanes
from :"schema".app_outbox_relay as r
left join (
    select
        c.relay_id,
        sum(cardinality(c.outbox_ids))::bigint as rows_claimed,
        min(c.claimed_at) as oldest_claim_at
    from :"schema".app_outbox_claim as c
    group by c.relay_id
) as claimed on r.relay_id = claimed.relay_id
