-- Frees lanes of a relay that has no row of them in flight.
-- Locks: the lane rows. Index: app_outbox_lane_pkey.
update :"schema".app_outbox_lane as l
set relay_id = null, epoch = l.epoch + 1, changed_at = now()
where l.lane = any(:'lanes'::smallint []) and l.relay_id = :'relay_id'::integer
