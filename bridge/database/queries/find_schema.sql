-- Tells whether the schema, its ledger and an outbox exist, and what the ledger lets us do.
-- Locks nothing. Index: the catalog's own.
select
    n.oid is not null as has_schema,
    ledger.oid is not null as has_ledger,
    outbox.oid is not null as has_outbox,
    coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage'), false)
    and coalesce(pg_catalog.has_table_privilege(ledger.oid, 'select'), false) as may_read
from (values (:'schema_name'::pg_catalog.name)) as wanted (nspname)
left join pg_catalog.pg_namespace as n on wanted.nspname = n.nspname
left join pg_catalog.pg_class as ledger
    on n.oid = ledger.relnamespace and ledger.relname = 'app_outbox_migration'
left join pg_catalog.pg_class as outbox
    on n.oid = outbox.relnamespace and outbox.relname = 'app_outbox';
