-- Lists the indexes of app_outbox that mention a column which claim or settle changes, in their key, an
-- expression or their WHERE: each makes these updates non-HOT.
-- Locks: nothing. Index: the catalog's own.
select
    i.relname::text as index_name,
    array_agg(distinct a.attname::text order by a.attname::text) as columns
from pg_catalog.pg_class as t
inner join pg_catalog.pg_index as x on t.oid = x.indrelid
inner join pg_catalog.pg_class as i on x.indexrelid = i.oid
inner join
    pg_catalog.pg_depend as d
    on
        x.indexrelid = d.objid
        and d.classid = 'pg_catalog.pg_class'::regclass
        and d.refclassid = 'pg_catalog.pg_class'::regclass
        and t.oid = d.refobjid
inner join pg_catalog.pg_attribute as a on t.oid = a.attrelid and d.refobjsubid = a.attnum
where
    t.relnamespace = (select n.oid from pg_catalog.pg_namespace as n where n.nspname = :'schema_name')
    and t.relname = 'app_outbox'
    and a.attname = any(:'columns'::text [])
group by i.relname
order by i.relname
