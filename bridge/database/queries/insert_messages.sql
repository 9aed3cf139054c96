-- Enqueues many messages; keys that are known do not come back.
-- The ids are drawn in the order of the arrays, because ordered rows go out by id; the rows are
-- inserted in the order of their keys, because two writers with common keys would deadlock otherwise.
-- Locks: the new rows; waits for other transactions that are inserting the same keys.
-- Index: app_outbox_message_key_key.
with given as materialized (
    select
        pg_catalog.nextval(:'sequence'::pg_catalog.regclass) as outbox_id,
        m.message_key,
        m.event_type,
        m.destination,
        m.ordering_key,
        m.content_type,
        m.headers,
        m.payload_json,
        m.payload_bytes,
        m.max_retry_count,
        m.not_before
    -- The linter does not know `rows from`.
    from rows from ( -- noqa: PRS
        pg_catalog.unnest(:'message_key'::pg_catalog.text []),
        pg_catalog.unnest(:'event_type'::pg_catalog.text []),
        pg_catalog.unnest(:'destination'::pg_catalog.text []),
        pg_catalog.unnest(:'ordering_key'::pg_catalog.text []),
        pg_catalog.unnest(:'content_type'::pg_catalog.text []),
        pg_catalog.unnest(:'headers'::pg_catalog.text []),
        pg_catalog.unnest(:'payload_json'::pg_catalog.text []),
        pg_catalog.unnest(:'payload_bytes'::pg_catalog.bytea []),
        pg_catalog.unnest(:'max_retry_count'::pg_catalog.int4 []),
        pg_catalog.unnest(:'not_before'::pg_catalog.timestamptz [])
    ) as m (
        message_key,
        event_type,
        destination,
        ordering_key,
        content_type,
        headers,
        payload_json,
        payload_bytes,
        max_retry_count,
        not_before
    )
)

insert into :"schema".app_outbox (
    outbox_id,
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
select
    g.outbox_id,
    g.message_key,
    g.event_type,
    g.destination,
    g.ordering_key,
    g.content_type,
    g.headers::pg_catalog.jsonb,
    g.payload_json::pg_catalog.json,
    g.payload_bytes,
    coalesce(g.max_retry_count, 5),
    coalesce(g.not_before, pg_catalog.now())
from given as g
order by g.message_key collate pg_catalog."C"
on conflict (message_key) do nothing
returning message_key, outbox_id
