-- Returns the seconds for which the answer to this charge is to be held back, if any.
-- Locks: that row. Index: fault_pkey.
update fault set times_left = times_left - 1, order_id = :'order_id'
where account = :'account' and times_left > 0 and (only_order is null or only_order = :'order_id')
returning seconds
