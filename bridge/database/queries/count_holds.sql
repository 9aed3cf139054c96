-- Counts the rows that hold up their key.
-- Locks: nothing. Reads all holds.
select count(*)
from :"schema".app_outbox_hold as h
where h.released_at is null
