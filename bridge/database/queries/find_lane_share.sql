-- Tells how many relays share the lanes, which lanes this one owns and which are free.
-- Locks: nothing (the caller holds the lock of the duty). The tables are small.
select
    (
        select count(*)
        from :"schema".app_outbox_relay as r
        where not r.stopping and r.heartbeat_at > now() - r.lease_seconds * interval '1 second'
    ) as relays,
    array(
        select l.lane
        from :"schema".app_outbox_lane as l
        where l.relay_id = :'relay_id'::integer
        order by l.lane
    ) as owned,
    array(
        select l.lane
        from :"schema".app_outbox_lane as l
        where
            l.relay_id is null
            or (
                not exists (select from :"schema".app_outbox_relay as r where r.relay_id = l.relay_id)
                and not exists (select from :"schema".app_outbox_claim as c where c.relay_id = l.relay_id)
            )
        order by l.lane
    ) as free
