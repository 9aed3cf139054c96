-- Lists the accepted orders, and by which way they came.
-- Locks: nothing. Index: none, it reads everything.
select
    order_id,
    way
from shop_order
