-- Takes the session lock that says "this relay lives"; the server drops it with the connection.
-- Locks: advisory (class, relay_id), for the session.
select pg_catalog.pg_advisory_lock(:'relay_class'::integer, :'relay_id'::integer)
