-- Tries to be the one relay that does a duty now, for this transaction.
-- Locks: advisory (class, 0), for the transaction.
select pg_catalog.pg_try_advisory_xact_lock(:'duty_class'::integer, 0)
