-- Lists the keys of all outbox rows.
-- Locks: nothing. Reads the table as a whole, once.
select o.message_key
from :"schema".app_outbox as o
