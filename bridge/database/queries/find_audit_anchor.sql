-- Looks for the entry with which pruning closed the part of the chain up to a position: it names that
-- position and its hash (hexadecimal).
-- Locks: nothing. Index: none; reads entries of one action.
select a.audit_id
from :"schema".app_outbox_audit as a
inner join :"schema".app_outbox_audit_link as l on a.audit_id = l.audit_id
where
    a.action_name = 'prune audit'
    and a.after_state ->> 'last_position' = :'position'::text
    and a.after_state ->> 'last_hash' = :'hash'::text
limit 1
