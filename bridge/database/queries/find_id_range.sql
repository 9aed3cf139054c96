-- Tells the lowest and the highest outbox_id. Locks: nothing. Index: app_outbox_pkey.
select
    coalesce(min(o.outbox_id), 0) as first_id,
    coalesce(max(o.outbox_id), -1) as last_id
from :"schema".app_outbox as o
