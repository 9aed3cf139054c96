-- Replaces the counters' daily rows from before so many seconds by one for each destination and status;
-- their sums, which are all that is asked of them, stay the same.
-- Locks: the rows it replaces; leaves them alone where there is nothing new to merge.
with old_rows as (
    delete from :"schema".app_outbox_counter as c
    where
        c.counted_at < now() - :'seconds'::float8 * interval '1 second'
        and exists (
            select
            from :"schema".app_outbox_counter as d
            where
                d.counted_at < now() - :'seconds'::float8 * interval '1 second'
                and d.counted_at > '-infinity'
        )
    returning c.destination, c.status, c.delta
)

insert into :"schema".app_outbox_counter (destination, status, delta, counted_at)
select
    o.destination,
    o.status,
    sum(o.delta),
    '-infinity'
from old_rows as o
group by o.destination, o.status
having sum(o.delta) <> 0
