-- Reads a stretch of the audit's chain: each link with the text that its hash must cover (null where the
-- entry is gone). The text is built here and not by a function of the schema, which whoever changed
-- the audit may have changed as well.
-- Locks: nothing. Index: app_outbox_audit_link_pkey, app_outbox_audit_pkey.
select
    l.position,
    l.audit_id,
    l.prev_hash,
    l.hash,
    case when a.audit_id is not null then pg_catalog.convert_to(
        pg_catalog.jsonb_build_array(
            l.position,
            pg_catalog.timezone('UTC', l.linked_at),
            a.audit_id,
            a.outbox_id,
            a.action_name,
            a.reason,
            a.changed_by,
            pg_catalog.timezone('UTC', a.changed_at),
            a.before_state,
            a.after_state,
            a.source,
            a.request_id,
            a.database_user
        )::text,
        'UTF8'
    ) end as hashed_text
from :"schema".app_outbox_audit_link as l
left join :"schema".app_outbox_audit as a on l.audit_id = a.audit_id
where l.position > :'after'::bigint
order by l.position
limit :'row_limit'::integer
