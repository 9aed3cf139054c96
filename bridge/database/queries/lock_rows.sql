-- Locks those of the given rows that nobody else has locked and tells which they are; rows that do
-- not exist any more are told as well, since nobody can hold them.
-- Locks: the rows, in id order, with SKIP LOCKED. Index: app_outbox_pkey.
with locked as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where o.outbox_id = any(:'outbox_ids'::bigint [])
    order by o.outbox_id
    for update of o skip locked
)

select locked.outbox_id from locked
union all
select asked.outbox_id
from unnest(:'outbox_ids'::bigint []) as asked (outbox_id)
where not exists (select from :"schema".app_outbox as o where o.outbox_id = asked.outbox_id)
