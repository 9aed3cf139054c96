-- Returns how many charges of an account are still to be answered late, and the order of the latest that was.
-- Locks: nothing. Index: fault_pkey.
select
    times_left,
    order_id
from fault where account = :'account'
