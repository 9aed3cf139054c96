-- Finds a time zone by its name, however it is capitalised.
-- Locks: nothing. Reads the server's list of time zones.
select z.name::text as time_zone
from pg_catalog.pg_timezone_names as z
where lower(z.name) = lower(:'time_zone'::text)
order by z.name = :'time_zone'::text desc
limit 1
