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
    destination,
    status,
    sum(delta),
    case
        when counted_at >= now() - interval '1 day' then date_trunc('minute', counted_at)
        else date_trunc('day', counted_at)
    end
from old_rows
group by 1, 2, 4, delta > 0
