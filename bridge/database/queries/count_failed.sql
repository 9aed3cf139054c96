-- Counts FAILED rows by destination and error code, with the first and the latest time.
-- Locks: nothing. Reads the list of FAILED rows as a whole.
select
    e.destination,
    e.error_code,
    e.messages,
    e.first_at,
    e.latest_at
from :"schema".outbox_by_error as e
order by e.destination asc, e.messages desc, e.error_code asc
