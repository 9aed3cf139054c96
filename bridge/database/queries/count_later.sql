-- Counts the rows that wait for a later time.
-- Locks: nothing. Index: app_outbox_pkey; reads the queue as a whole, once at the end of a run, and of
-- the outbox only the rows that wait. The entry's own time narrows it to them: without that, statistics
-- from before the run, when the queue was full, made it read (and prune) every row that was just sent.
select count(distinct o.outbox_id)
from :"schema".app_outbox_queue as q
inner join :"schema".app_outbox as o on q.outbox_id = o.outbox_id
where
    q.next_run_at > now()
    and o.status = 'PENDING'
    and o.next_run_at > now()
