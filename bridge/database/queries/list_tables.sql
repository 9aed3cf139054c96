-- Lists the outbox tables: their storage options, and what the statistics count of them.
-- Locks: nothing. Index: the catalog's own.
select
    c.relname::text as table_name,
    coalesce(c.reloptions, '{}'::text []) as options,
    coalesce(s.n_live_tup, 0) as live_rows,
    coalesce(s.n_dead_tup, 0) as dead_rows,
    coalesce(s.n_tup_upd, 0) as updates,
    coalesce(s.n_tup_hot_upd, 0) as hot_updates,
    extract(
        epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)
    )::float8 as vacuumed_seconds,
    pg_catalog.age(c.relfrozenxid) as frozen_age
from pg_catalog.pg_class as c
left join pg_catalog.pg_stat_all_tables as s on c.oid = s.relid
where
    c.relnamespace = (select n.oid from pg_catalog.pg_namespace as n where n.nspname = :'schema_name')
    and c.relkind = 'r'
    and c.relname like 'app\_outbox%'
order by c.relname
