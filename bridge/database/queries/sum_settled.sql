-- Counts SENT and CANCELLED rows by destination.
-- Locks: nothing. Index: none; the increments are few, since relays roll them up.
select
    c.destination,
    c.status,
    sum(c.delta)::bigint as rows_counted
from :"schema".app_outbox_counter as c
group by c.destination, c.status
having sum(c.delta) <> 0
