-- Counts the rows that relays have in hand, by destination.
-- Locks: nothing. Index: app_outbox_pkey; the claims hold what is in flight. The limit keeps the planner
-- from joining any other way than row by row.
select
    o.destination::text as destination,
    count(*) as rows_counted
from :"schema".app_outbox_claim as c
cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
cross join
    lateral (
        select
            r.destination,
            r.status
        from :"schema".app_outbox as r
        where r.outbox_id = claimed.outbox_id
        limit 1
    ) as o
where o.status = 'PROCESSING'
group by o.destination
