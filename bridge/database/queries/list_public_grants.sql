-- Lists what everybody (PUBLIC) may do with the outbox tables and views, and which of the given roles
-- exist.
-- Locks: nothing. Index: the catalog's own.
select
    c.relname::text as object_name,
    x.privilege_type as privilege
from pg_catalog.pg_class as c
cross join lateral aclexplode(c.relacl) as x
where
    c.relnamespace = (select n.oid from pg_catalog.pg_namespace as n where n.nspname = :'schema_name')
    and (c.relname like 'app\_outbox%' or c.relname like 'outbox\_%')
    and x.grantee = 0
union all
select
    '',
    r.rolname::text
from pg_catalog.pg_roles as r
where r.rolname = any(:'roles'::text [])
order by object_name, privilege
