-- Lists what operators did to one row, in order.
-- Locks: nothing. Index: app_outbox_audit_outbox_id_idx.
select
    a.audit_id,
    a.action_name,
    a.reason,
    a.changed_by,
    a.changed_at,
    a.source
from :"schema".app_outbox_audit as a
where a.outbox_id = :'outbox_id'::bigint
order by a.audit_id
