-- Replaces the counters' increments by one row for each destination, status and minute, and minutes
-- older than a day by one for each day. What entered a status and what left it stay apart, so that
-- pruning and replays do not lessen what was sent in a minute.
-- Locks: the increments it replaces (the caller holds the lock of the duty).
with old_rows as (
    delete from :"schema".app_outbox_counter
    where
        (counted_at < date_trunc('minute', now()) and counted_at <> date_trunc('minute', counted_at))
        or (counted_at < now() - interval '1 day' and counted_at <> date_trunc('day', counted_at))
    returning destination, status, delta, counted_at
)

insert into :"schema".app_outbox_counter (destination, status, delta, counted_at)
select
    o.destination,
    o.status,
    sum(o.delta),
    o.counted_at
from (
    select
        old_rows.destination,
        old_rows.status,
        old_rows.delta,
        case
            when old_rows.counted_at >= now() - interval '1 day' then date_trunc('minute', old_rows.counted_at)
            else date_trunc('day', old_rows.counted_at)
        end as counted_at
    from old_rows
) as o
group by o.destination, o.status, o.counted_at, sign(o.delta)
