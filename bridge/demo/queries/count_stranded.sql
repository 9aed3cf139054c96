-- Counts those of the given rows that nobody has taken back from their dead relay yet.
-- Locks: nothing. Index: app_outbox_pkey.
select count(*)
from :"schema".app_outbox as o
where
    o.outbox_id = any(:'outbox_ids'::bigint [])
    and o.status = 'PROCESSING'
    and o.last_error_code is distinct from :'rescued_code'
