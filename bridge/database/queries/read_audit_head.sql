-- Reads the end of the audit's chain as its head tells it.
-- Locks: nothing. The table has one row.
select
    h.position,
    h.hash
from :"schema".app_outbox_audit_head as h
