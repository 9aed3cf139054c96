-- Tells the start (microseconds since 2000-01-01 UTC) of the oldest transaction that has written
-- something and is still open: rows that become visible later have no earlier default next_run_at.
-- Sessions of other users show their start only to members of pg_read_all_stats; null where any is
-- hidden, and the caller falls back to a fixed margin. Prepared transactions count from their start
-- at the latest, so any of them gives null too.
-- Locks: nothing.
select
    case
        when bool_or(a.backend_xid is not null and a.xact_start is null) then null
        when exists (select from pg_catalog.pg_prepared_xacts) then null
        else (
            extract(epoch from coalesce(min(a.xact_start) filter (where a.backend_xid is not null), now())
            - timestamptz '2000-01-01 00:00:00+00') * 1000000
        )::bigint
    end
from pg_catalog.pg_stat_activity as a
where a.datname = current_database() and a.pid <> pg_backend_pid()
