-- Renews the heartbeat; no row means that others declared this relay dead.
-- Locks: its own row. Index: app_outbox_relay_pkey.
update :"schema".app_outbox_relay
set heartbeat_at = now(), stopping = :'stopping'::boolean, has_lock = :'has_lock'::boolean
where relay_id = :'relay_id'::integer
returning relay_id
