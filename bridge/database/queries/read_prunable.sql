-- Reads whole rows as JSON, for an archive outside of the database.
-- Locks: nothing; lock_prunable.sql already holds the rows. Index: app_outbox_pkey.
select row_to_json(o)::text
from :"schema".app_outbox as o
where o.outbox_id = any(:'outbox_ids'::bigint [])
order by o.outbox_id
