-- Tells whether any claim belongs to a relay that is gone: unregistered, or its session lock free; or
-- any lane to a registered one whose session lock is free.
-- Locks: the free advisory locks, shared, for this statement only. The tables are small.
select
    coalesce(
        bool_or(
            not exists (select from :"schema".app_outbox_relay as r where r.relay_id = c.relay_id)
            or pg_catalog.pg_try_advisory_xact_lock_shared(:'relay_class'::integer, c.relay_id)
        ),
        false
    )
from (
    select k.relay_id
    from :"schema".app_outbox_claim as k
    union
    select r.relay_id
    from :"schema".app_outbox_relay as r
    where exists (select from :"schema".app_outbox_lane as l where l.relay_id = r.relay_id)
) as c
where c.relay_id <> :'relay_id'::integer
