-- Puts the counters of SENT and CANCELLED rows right; reads the whole table once. Returns how many
-- counters were wrong.
-- Every transaction that changes a row's status counts it too, so in one snapshot the difference
-- between rows and counters is exactly what triggers did not see. It is added like any increment,
-- and what others count meanwhile is added to it.
-- Locks: nothing.
with counted as (
    select
        o.destination,
        o.status,
        count(*) as delta
    from :"schema".app_outbox as o
    where o.status in ('SENT', 'CANCELLED')
    group by o.destination, o.status
    union all
    select
        c.destination,
        c.status,
        -sum(c.delta)
    from :"schema".app_outbox_counter as c
    group by c.destination, c.status
)

insert into :"schema".app_outbox_counter (destination, status, delta)
select
    counted.destination,
    counted.status,
    sum(counted.delta)
from counted
group by counted.destination, counted.status
having sum(counted.delta) <> 0
