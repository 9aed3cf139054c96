-- Registers a starting relay. In the same transaction it takes the session lock on its relay_id
-- (lock_relay.sql), so that nobody ever sees the row of a living relay with its lock free; has_lock is
-- false where it can have none (behind a transaction pooler).
-- Locks: nothing.
insert into :"schema".app_outbox_relay (relay_name, host, pid, version, lease_seconds, has_lock)
values (:'relay_name', :'host', :'pid'::integer, :'version', :'lease_seconds'::integer, :'has_lock'::boolean)
returning relay_id
