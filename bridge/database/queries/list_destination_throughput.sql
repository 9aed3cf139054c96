-- Lists the rows of each destination that became SENT in each of the last 60 minutes.
-- Locks: nothing. Reads the counters as a whole.
select
    t.minute,
    t.destination,
    t.sent
from :"schema".outbox_throughput_by_destination as t
where t.sent > 0
