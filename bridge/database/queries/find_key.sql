-- Finds the row of a message key.
-- Locks: nothing. Index: app_outbox_message_key_key.
select o.outbox_id
from :"schema".app_outbox as o
where o.message_key = :'message_key'::text
