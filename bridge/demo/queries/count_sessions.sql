-- Counts the database sessions of one relay: all of them, and those that run a statement now.
-- Locks: nothing.
select
    count(*),
    count(*) filter (where a.state <> 'idle')
from pg_stat_activity as a
where a.application_name like :'pattern' and a.datname = current_database()
