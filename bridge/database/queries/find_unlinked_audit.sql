-- Finds audit entries that the chain does not know: written while its trigger was off.
-- Locks: nothing. Index: app_outbox_audit_pkey, app_outbox_audit_link_audit_id_key.
select a.audit_id
from :"schema".app_outbox_audit as a
where not exists (select from :"schema".app_outbox_audit_link as l where l.audit_id = a.audit_id)
order by a.audit_id
limit :'row_limit'::integer
