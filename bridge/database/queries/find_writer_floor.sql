-- Tells a time (microseconds since 2000-01-01 UTC) that no later commit undercuts: rows that become
-- visible later have no earlier default next_run_at, which is the start of their transaction.
-- That is the start of the oldest open transaction that has written something, or may yet write: one
-- that began in the last five seconds, or waits between two statements without a snapshot, for at most
-- a minute. An older one that only reads is not waited for, since that is what holds dead entries; rows
-- that it writes at last are found by the walk over the whole index. A second is taken off for
-- transactions that are just about to show their start.
-- Sessions of other users show their start only to members of pg_read_all_stats; null where any is
-- hidden, and the caller falls back to a fixed margin. Prepared transactions count from their start
-- at the latest, so any of them gives null too.
-- Locks: nothing.
with opened as (
    select
        a.xact_start,
        a.backend_xid is not null as has_written,
        a.backend_xmin is null as has_no_snapshot
    from pg_catalog.pg_stat_activity as a
    where
        a.datname = current_database()
        and a.pid <> pg_backend_pid()
        and coalesce(a.backend_type, '') not in ('autovacuum worker', 'parallel worker', 'walsender')
),

floor_time as (
    select coalesce(min(o.xact_start), now()) - interval '1 second' as value
    from opened as o
    where
        o.has_written
        or o.xact_start > now() - interval '5 seconds'
        or (o.has_no_snapshot and o.xact_start > now() - interval '1 minute')
)

select
    case
        when exists (
            select
            from opened as o
            where o.xact_start is null and (o.has_written or not o.has_no_snapshot)
        ) then null
        when exists (select from pg_catalog.pg_prepared_xacts) then null
        else (extract(epoch from f.value - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
    end as floor_microseconds
from floor_time as f
