-- Enqueues one message; no row comes back where its key is known.
-- Locks: the new row; waits for another transaction that is inserting the same key.
-- Index: app_outbox_message_key_key.
insert into :"schema".app_outbox (
    message_key,
    event_type,
    destination,
    ordering_key,
    content_type,
    headers,
    payload_json,
    payload_bytes,
    max_retry_count,
    next_run_at
)
values (
    :'message_key',
    :'event_type',
    :'destination',
    :'ordering_key',
    :'content_type',
    :'headers'::pg_catalog.jsonb,
    :'payload_json'::pg_catalog.json,
    :'payload_bytes'::pg_catalog.bytea,
    coalesce(:'max_retry_count'::pg_catalog.int4, 5),
    coalesce(:'not_before'::pg_catalog.timestamptz, pg_catalog.now())
)
on conflict (message_key) do nothing
returning outbox_id
