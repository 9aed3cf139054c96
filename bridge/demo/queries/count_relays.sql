-- Counts the relays that have registered.
-- Locks: nothing. The table is small.
select count(*)
from :"schema".app_outbox_relay
