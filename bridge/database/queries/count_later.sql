-- Counts the rows that wait for a later time.
-- Locks: nothing. Index: app_outbox_pkey; reads the queue as a whole, once at the end of a run.
select count(distinct o.outbox_id)
from :"schema".app_outbox_queue as q
inner join :"schema".app_outbox as o on q.outbox_id = o.outbox_id
where o.status = 'PENDING' and o.next_run_at > now()
