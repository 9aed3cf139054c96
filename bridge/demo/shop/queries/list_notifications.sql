-- Lists the orders whose customers were told.
-- Locks: nothing. Index: none, it reads everything.
select order_id from notification
