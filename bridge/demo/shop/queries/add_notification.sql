-- Tells a customer; the demo sends no mail.
-- Locks: nothing that exists.
insert into notification (order_id, customer, told)
values (:'order_id', :'customer', :'told')
