-- Tells which of the given rights their roles lack; roles that do not exist are left out.
-- Locks: nothing. Index: the catalog's own.
select
    g.role_name,
    g.privilege,
    g.object_name,
    g.column_name
from
    unnest(
        :'roles'::text [], :'kinds'::text [], :'objects'::text [], :'columns'::text [], :'privileges'::text []
    ) as g (role_name, kind, object_name, column_name, privilege)
inner join pg_catalog.pg_roles as r on g.role_name = r.rolname
where
    not coalesce(
        case g.kind
            when 'schema' then has_schema_privilege(r.oid, to_regnamespace(g.object_name), g.privilege)
            when 'function' then has_function_privilege(r.oid, to_regprocedure(g.object_name), g.privilege)
            when 'sequence' then has_sequence_privilege(r.oid, to_regclass(g.object_name), g.privilege)
            else case
                when g.column_name = '' then has_table_privilege(r.oid, to_regclass(g.object_name), g.privilege)
                else has_column_privilege(r.oid, to_regclass(g.object_name), g.column_name, g.privilege)
            end
        end,
        false
    )
order by g.role_name, g.object_name, g.privilege, g.column_name
