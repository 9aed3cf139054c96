-- Counts the rows that wait for a later time.
-- Locks: nothing. Index: app_outbox_pkey; reads the queue as a whole, once at the end of a run, and of
-- the outbox only the rows that wait. As a join it read (and pruned) every row that was just sent:
-- statistics from before the run, when the queue was full, called for it.
select count(*)
from (
    select distinct q.outbox_id
    from :"schema".app_outbox_queue as q
    where q.next_run_at > now()
) as waiting
where
    exists (
        select
        from :"schema".app_outbox as o
        where o.outbox_id = waiting.outbox_id and o.status = 'PENDING' and o.next_run_at > now()
        offset 0 -- a look-up for each row, never a join
    )
