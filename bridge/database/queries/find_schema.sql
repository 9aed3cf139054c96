-- Tells whether the schema, a set's ledger and its main table exist, and what the ledger lets us do.
-- Locks nothing. Index: the catalog's own.
select
    n.oid is not null as has_schema,
    ledger.oid is not null as has_ledger,
    main.oid is not null as has_main_table,
    coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage'), false)
    and coalesce(pg_catalog.has_table_privilege(ledger.oid, 'select'), false) as may_read
from (values (:'schema_name'::pg_catalog.name)) as wanted (nspname)
left join pg_catalog.pg_namespace as n on wanted.nspname = n.nspname
left join pg_catalog.pg_class as ledger
    on n.oid = ledger.relnamespace and ledger.relname = :'ledger'::pg_catalog.name
left join pg_catalog.pg_class as main
    on n.oid = main.relnamespace and main.relname = :'main_table'::pg_catalog.name;
