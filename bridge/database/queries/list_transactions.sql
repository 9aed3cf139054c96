-- Lists the transactions of this database that have been open for longer than so many seconds, the
-- oldest first, and how many sessions hide theirs from the user that asks. Prepared ones count, too.
-- Locks: nothing.
with session as (
    select
        a.pid,
        a.usename::text as user_name,
        a.application_name,
        coalesce(host(a.client_addr), 'local') as client,
        a.state,
        a.backend_xmin is not null as holds_snapshot,
        a.backend_xid is not null as has_written,
        extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds,
        a.xact_start is null and (a.backend_xid is not null or a.backend_xmin is not null) as is_hidden
    from pg_catalog.pg_stat_activity as a
    where
        a.datname = current_database()
        and a.pid <> pg_backend_pid()
        and coalesce(a.backend_type, '') not in ('autovacuum worker', 'parallel worker', 'walsender')
)

select
    s.pid,
    s.user_name,
    s.application_name,
    s.client,
    s.state,
    s.holds_snapshot,
    s.has_written,
    s.seconds,
    s.is_hidden
from session as s
where s.seconds > :'seconds'::float8 or s.is_hidden
union all
select
    null,
    p.owner::text,
    'prepared transaction ' || p.gid,
    '',
    'prepared',
    true,
    true,
    extract(epoch from clock_timestamp() - p.prepared)::float8,
    false
from pg_catalog.pg_prepared_xacts as p
where p.database = current_database() and p.prepared < clock_timestamp() - :'seconds'::float8 * interval '1 second'
order by seconds desc nulls last
