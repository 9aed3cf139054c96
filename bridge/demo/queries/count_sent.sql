-- Counts the SENT rows by their counters, cheaply and often.
-- Locks: nothing. The table is small.
select coalesce(sum(c.delta), 0)::bigint
from :"schema".app_outbox_counter as c
where c.status = 'SENT'
