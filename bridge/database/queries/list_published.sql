-- Lists the outbox tables that a publication contains, and whether it can publish their updates and
-- deletes: else the server refuses these.
-- Locks: nothing. Index: the catalog's own.
select
    p.pubname::text as publication,
    t.tablename::text as table_name,
    case
        when not (p.pubupdate or p.pubdelete) then true
        when c.relreplident = 'f' then true
        when c.relreplident = 'n' then false
        else exists (
            select
            from pg_catalog.pg_index as x
            where
                x.indrelid = c.oid
                and x.indisvalid
                and case when c.relreplident = 'i' then x.indisreplident else x.indisprimary end
        )
    end as is_fit
from pg_catalog.pg_publication as p
inner join pg_catalog.pg_publication_tables as t on p.pubname = t.pubname
inner join pg_catalog.pg_namespace as n on t.schemaname = n.nspname
inner join pg_catalog.pg_class as c on n.oid = c.relnamespace and t.tablename = c.relname
where n.nspname = :'schema_name' and c.relname like 'app\_outbox%'
order by p.pubname, t.tablename
