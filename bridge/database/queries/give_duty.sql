-- Ends a long duty. Locks: nothing.
select pg_catalog.pg_advisory_unlock(:'duty_class'::integer, 0)
