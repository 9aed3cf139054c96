-- Lists the orders for which the payment service noted a charge.
-- Locks: nothing. Index: none, it reads everything.
select order_id from payment
