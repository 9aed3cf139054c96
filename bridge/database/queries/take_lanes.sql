-- Gives free lanes to a relay: those without owner, or whose owner is gone with all its claims.
-- Locks: the lane rows. Index: app_outbox_lane_pkey.
update :"schema".app_outbox_lane as l
set relay_id = :'relay_id'::integer, epoch = l.epoch + 1, changed_at = now()
where
    l.lane = any(:'lanes'::smallint [])
    and (
        l.relay_id is null
        or (
            not exists (select from :"schema".app_outbox_relay as r where r.relay_id = l.relay_id)
            and not exists (select from :"schema".app_outbox_claim as c where c.relay_id = l.relay_id)
        )
    )
returning l.lane
