-- Tells whether any claim belongs to a relay that is gone: unregistered, its session lock free, or for
-- one without such a lock its heartbeat older than its lease; or any lane to a registered one like that.
-- Locks: the free advisory locks, shared, for this statement only. The tables are small.
select
    coalesce(
        bool_or(
            case
                when r.relay_id is null then true
                when r.has_lock then pg_catalog.pg_try_advisory_xact_lock_shared(:'relay_class'::integer, c.relay_id)
                else r.heartbeat_at < now() - r.lease_seconds * interval '1 second'
            end
        ),
        false
    )
from (
    select k.relay_id
    from :"schema".app_outbox_claim as k
    union
    select owner.relay_id
    from :"schema".app_outbox_relay as owner
    where exists (select from :"schema".app_outbox_lane as l where l.relay_id = owner.relay_id)
) as c
left join :"schema".app_outbox_relay as r on c.relay_id = r.relay_id
where c.relay_id <> :'relay_id'::integer
