-- Charges an account's customer.
-- Locks: nothing that exists.
insert into charge (account, order_id, amount_cents, currency)
values (:'account', :'order_id', :'amount_cents'::bigint, :'currency')
returning charge_id
