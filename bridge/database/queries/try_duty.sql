-- Tries to be the one relay that does a long duty, for the session.
-- Locks: advisory (class, 0), until give_duty.sql.
select pg_catalog.pg_try_advisory_lock(:'duty_class'::integer, 0)
