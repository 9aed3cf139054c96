-- Gives the wake-up lock back: from now on writers spare themselves the NOTIFY.
-- Locks: nothing.
select pg_catalog.pg_advisory_unlock(:'wake_class', 0)
