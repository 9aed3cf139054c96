-- Lists the newest rows that are SENT, among the newest ids: their keys, and where they landed.
-- Locks: nothing. Index: app_outbox_pkey, walked backwards over at most 1,000 rows.
select
    o.destination,
    o.message_key,
    o.ordering_key,
    coalesce(o.sent_topic, o.destination) as topic,
    o.sent_partition
from (
    select
        r.destination,
        r.message_key,
        r.ordering_key,
        r.sent_topic,
        r.sent_partition,
        r.status
    from :"schema".app_outbox as r
    order by r.outbox_id desc
    limit 1000
) as o
where o.status = 'SENT' and o.sent_partition >= 0
limit :'row_limit'::integer
