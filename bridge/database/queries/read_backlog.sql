-- Counts the rows of each destination by status, exactly, and since when the longest waiting one could
-- have gone out (seconds).
-- Locks: nothing. Index: app_outbox_pkey; reads queue, claims, failed list and counters as a whole.
-- Exact in one snapshot: every PENDING row has a queue entry, every PROCESSING row a claim, every
-- FAILED row an entry of the list, SENT and CANCELLED are the sum of the counters' increments, each
-- written by the transaction that changed the row; entries and ids that have become stale are sorted
-- out by the row's own status.
select
    d.destination,
    d.pending,
    d.processing,
    d.sent,
    d.failed,
    d.cancelled,
    d.due,
    d.later,
    d.oldest_unsent_seconds
from :"schema".outbox_by_destination as d
order by d.destination
