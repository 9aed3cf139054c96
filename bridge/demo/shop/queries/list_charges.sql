-- Lists what the payment API charged.
-- Locks: nothing. Index: none, it reads everything.
select
    order_id,
    account
from charge
