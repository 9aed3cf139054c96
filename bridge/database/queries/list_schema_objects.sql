-- Everything that a migration may have made, as (kind, name, detail).
-- Detail: a table's persistence, whether a trigger fires, an index is valid and a constraint is
-- checked, a function's body; else empty.
-- Locks nothing. Index: the catalog's own.
with tables as (
    select
        c.oid,
        c.relname::pg_catalog.text as table_name,
        c.relpersistence
    from pg_catalog.pg_class as c
    where c.relnamespace = :'schema_oid'::pg_catalog.oid and c.relkind in ('r', 'p')
),

views as (
    select
        c.oid,
        c.relname::pg_catalog.text as table_name
    from pg_catalog.pg_class as c
    where c.relnamespace = :'schema_oid'::pg_catalog.oid and c.relkind = 'v'
)

select
    'table' as kind,
    t.table_name as object_name,
    case when t.relpersistence = 'u' then 'unlogged' else '' end as detail
from tables as t
union all
select
    'view',
    v.table_name,
    ''
from views as v
union all
select
    'column',
    t.table_name || '.' || a.attname,
    ''
from (
    select
        tables.oid,
        tables.table_name
    from tables
    union all
    select
        views.oid,
        views.table_name
    from views
) as t
inner join pg_catalog.pg_attribute as a on t.oid = a.attrelid
where a.attnum > 0 and not a.attisdropped
union all
select
    'trigger',
    t.table_name || '.' || g.tgname,
    case
        when g.tgenabled = 'D' then 'disabled'
        when g.tgenabled = 'R' then 'enabled for replicas only'
        else ''
    end
from tables as t
inner join pg_catalog.pg_trigger as g on t.oid = g.tgrelid
where not g.tgisinternal
union all
select
    'constraint',
    t.table_name || '.' || k.conname,
    case when k.convalidated then '' else 'not validated' end
from tables as t
inner join pg_catalog.pg_constraint as k on t.oid = k.conrelid
where k.contype in ('c', 'f', 'p', 'u', 'x')
union all
select
    'index',
    t.table_name || '.' || i.relname,
    case when x.indisvalid and x.indisready then '' else 'invalid' end
from tables as t
inner join pg_catalog.pg_index as x on t.oid = x.indrelid
inner join pg_catalog.pg_class as i on x.indexrelid = i.oid
union all
select
    'function',
    p.proname,
    p.prosrc
from pg_catalog.pg_proc as p
where p.pronamespace = :'schema_oid'::pg_catalog.oid;
