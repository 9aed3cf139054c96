-- Tries the lock of another relay for this transaction: granted means that its session is gone.
-- Shared, so that relays that look at the same moment do not take each other for the living one.
-- Locks: advisory (class, relay_id), shared, for the transaction.
select pg_catalog.pg_try_advisory_xact_lock_shared(:'relay_class'::integer, :'relay_id'::integer)
