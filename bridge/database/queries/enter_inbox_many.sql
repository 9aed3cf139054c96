-- Keeps the keys of many messages for a consumer; returns those that are new.
-- Locks: the new rows. Waits for transactions that are inserting the same keys; in key order, so that
-- two that share keys do not wait for each other. Index: app_inbox_pkey.
insert into :"schema".app_inbox (
    consumer, message_key, content_hash, event_type, outbox_id, topic, partition_number, record_offset
)
select
    :'consumer',
    m.message_key,
    m.content_hash,
    m.event_type,
    m.outbox_id,
    m.topic,
    m.partition_number,
    m.record_offset
from
    unnest(
        :'message_keys'::text [],
        :'content_hashes'::bytea [],
        :'event_types'::text [],
        :'outbox_ids'::bigint [],
        :'topics'::text [],
        :'partition_numbers'::integer [],
        :'record_offsets'::bigint []
    ) as m (message_key, content_hash, event_type, outbox_id, topic, partition_number, record_offset)
order by m.message_key
on conflict (consumer, message_key) do nothing
returning message_key;
