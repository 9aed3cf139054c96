-- Counts what the reckoning compares: business rows and what they imply, outbox rows, effects.
-- Locks: nothing. Reads the tables as a whole, once.
select
    (select count(*) from shop_order) as orders,
    (
        select coalesce(sum(case s.status when 'created' then 1 when 'paid' then 3 else 4 end), 0)::bigint
        from shop_order as s
    ) as order_events,
    (select count(*) from :"schema".app_outbox) as enqueued,
    (select count(*) from :"schema".app_outbox as o where o.status = 'SENT') as sent,
    (select count(*) from :"schema".app_outbox as o where o.last_error_code = :'rescued_code') as rescued,
    (
        select count(*)
        from :"schema".app_outbox as o
        where o.message_key = any(:'rolled_back'::text [])
    ) as rolled_back_enqueued,
    (select count(*) from warehouse_processed) as processed,
    (select coalesce(sum(e.applied), 0)::bigint from warehouse_effect as e) as handled
