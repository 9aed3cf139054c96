-- Notes that an order was charged.
-- Locks: nothing that exists.
insert into payment (order_id, charge_id, amount_cents)
values (:'order_id', :'charge_id', :'amount_cents'::bigint)
