-- Keeps a message's key for a consumer; returns a row where the key is new.
-- Locks: the new row. Waits for a transaction that is inserting the same key. Index: app_inbox_pkey.
insert into :"schema".app_inbox (
    consumer, message_key, content_hash, event_type, outbox_id, topic, partition_number, record_offset
)
values (
    :'consumer',
    :'message_key',
    :'content_hash',
    :'event_type',
    :'outbox_id',
    :'topic',
    :'partition_number',
    :'record_offset'
)
on conflict (consumer, message_key) do nothing
returning 1 as entered;
