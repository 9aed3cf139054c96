-- Lists audit entries, newest first, below an audit_id. Null filters match everything.
-- Locks: nothing. Index: app_outbox_audit_outbox_id_idx, app_outbox_audit_request_id_idx, else
-- app_outbox_audit_pkey, walked until enough match.
select
    a.audit_id,
    l.position,
    a.outbox_id,
    a.action_name,
    a.reason,
    a.changed_by,
    a.database_user,
    a.changed_at,
    a.source,
    a.request_id,
    a.before_state,
    a.after_state
from :"schema".app_outbox_audit as a
left join :"schema".app_outbox_audit_link as l on a.audit_id = l.audit_id
where
    a.audit_id < :'before'::bigint
    and (:'outbox_id'::bigint is null or a.outbox_id = :'outbox_id'::bigint)
    and (:'action'::text is null or a.action_name = :'action'::text)
    and (:'changed_by'::text is null or :'changed_by'::text in (a.changed_by, a.database_user))
    and (:'source'::text is null or a.source = :'source'::text)
    and (:'request_id'::text is null or a.request_id = :'request_id'::text)
    and (:'changed_from'::timestamptz is null or a.changed_at >= :'changed_from'::timestamptz)
    and (:'changed_to'::timestamptz is null or a.changed_at < :'changed_to'::timestamptz)
order by a.audit_id desc
limit :'row_limit'::integer
