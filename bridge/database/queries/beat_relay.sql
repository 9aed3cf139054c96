-- Renews the heartbeat, and tells which destinations fail; no row means that others declared this relay dead.
-- Locks: its own row. Index: app_outbox_relay_pkey.
update :"schema".app_outbox_relay
set
    heartbeat_at = now(),
    stopping = :'stopping'::boolean,
    has_lock = :'has_lock'::boolean,
    failing = :'failing'::jsonb
where relay_id = :'relay_id'::integer
returning relay_id
