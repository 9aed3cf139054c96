-- Counts the rows that relays have in hand, by destination.
-- Locks: nothing. Index: app_outbox_pkey; the claims hold what is in flight.
select
    o.destination::text as destination,
    count(*) as rows_counted
from :"schema".app_outbox_claim as c
cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
inner join :"schema".app_outbox as o on claimed.outbox_id = o.outbox_id
where o.status = 'PROCESSING'
group by o.destination
