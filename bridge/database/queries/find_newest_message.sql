-- The newest message that this session sees, for tests: where to begin to count.
-- Locks nothing. Index: app_outbox_pkey, backwards.
select
    o.outbox_id,
    o.message_key
from :"schema".app_outbox as o
order by o.outbox_id desc
limit 1
