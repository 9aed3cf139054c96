-- Tries the wake-up lock exclusively, for the session: from now on writers send NOTIFY.
-- Locks: advisory (class, 0); never waits. The class travels as a constant of the schema.
select pg_catalog.pg_try_advisory_lock(:'wake_class', 0)
