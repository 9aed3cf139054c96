-- Locks rows that are to be pruned, those that still may be; others may have replayed one meanwhile.
-- Locks: the rows, in id order; rows that somebody else has locked are left for the next round.
-- Index: app_outbox_pkey. The state is checked in a case, which the planner does not estimate by
-- statistics: those that promise too few rows would make it walk the whole table.
select
    o.outbox_id,
    o.status
from :"schema".app_outbox as o
where
    o.outbox_id = any(:'outbox_ids'::bigint [])
    and case
        when o.status = 'SENT'
            then coalesce(o.sent_at, o.updated_at) < now() - :'sent_seconds'::float8 * interval '1 second'
        when o.status = 'CANCELLED'
            then o.updated_at < now() - :'sent_seconds'::float8 * interval '1 second'
        when o.status = 'FAILED'
            then o.updated_at < now() - :'failed_seconds'::float8 * interval '1 second'
        else false
    end
order by o.outbox_id
for update of o skip locked
