-- Tells the lowest outbox_id from one id on, and the highest of all; no row where there is none.
-- Locks: nothing. Index: app_outbox_pkey.
select
    first_row.outbox_id as first_id,
    (select max(o.outbox_id) from :"schema".app_outbox as o) as last_id
from (
    select min(o.outbox_id) as outbox_id
    from :"schema".app_outbox as o
    where o.outbox_id >= :'from_id'::bigint
) as first_row
where first_row.outbox_id is not null
