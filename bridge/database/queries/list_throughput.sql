-- Lists what was done in each of the last 60 minutes, the oldest first.
-- Locks: nothing. Reads counters and the list of FAILED rows as a whole.
select
    t.minute,
    t.sent,
    t.failed,
    t.cancelled
from :"schema".outbox_throughput as t
order by t.minute
