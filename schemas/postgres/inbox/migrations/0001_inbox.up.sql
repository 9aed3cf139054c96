-- The inbox of consumers: which messages have had their effect in this database.
--
-- A consumer inserts the row in the transaction that does its work: both are there or neither. A key
-- that is there already was processed; the primary key makes a second consumer wait for the first
-- one's transaction, so that two never do the same work, whatever Kafka's groups think.

create table :"schema".app_inbox (
    consumer varchar(100) not null,
    message_key varchar(200) not null,
    content_hash bytea not null,
    received_at timestamptz not null default now(),
    event_type varchar(100) not null,
    outbox_id bigint,
    topic varchar(249) not null,
    partition_number integer not null,
    record_offset bigint not null,
    result_json json,
    constraint app_inbox_pkey primary key (consumer, message_key),
    constraint app_inbox_content_hash_check check (octet_length(content_hash) = 32)
)
-- Room for the result on the row's own page: one update at most follows the insert.
with (fillfactor = 90, autovacuum_vacuum_insert_scale_factor = 0.05);

-- Pruning walks a consumer's part from its old end; inserts meet at its new end.
create index app_inbox_received_at_idx on :"schema".app_inbox (consumer, received_at);

comment on table :"schema".app_inbox is 'Messages that consumers of this database have processed, one row for each consumer and key.';
comment on column :"schema".app_inbox.consumer is 'Who processed it: by default the Kafka consumer group.';
comment on column :"schema".app_inbox.message_key is 'The message''s idempotency key: header idempotency-key.';
comment on column :"schema".app_inbox.content_hash is
'SHA-256 of event type, a zero byte, the character 1 or 0 for a payload or none, and the payload''s bytes: tells a repetition from another message under the same key.';
comment on column :"schema".app_inbox.received_at is 'Start of the transaction that processed it; pruning goes by it.';
comment on column :"schema".app_inbox.event_type is 'Header event-type; empty where a record has none.';
comment on column :"schema".app_inbox.outbox_id is 'Header outbox-id; null where a record has none.';
comment on column :"schema".app_inbox.topic is 'Topic of the record that was processed.';
comment on column :"schema".app_inbox.partition_number is 'Its partition.';
comment on column :"schema".app_inbox.record_offset is 'Its offset.';
comment on column :"schema".app_inbox.result_json is 'What the handler returned, where it returned something.';
