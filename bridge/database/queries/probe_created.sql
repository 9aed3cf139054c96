-- Tells id and time of creation of the first row from an id on; one step of a search by time.
-- Locks: nothing. Index: app_outbox_pkey.
select
    o.outbox_id,
    o.created_at
from :"schema".app_outbox as o
where o.outbox_id >= :'from_id'::bigint
order by o.outbox_id
limit 1
