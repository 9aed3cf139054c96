-- Reads one claimed row with its whole payload, while the claim still holds: for payloads that were
-- left in the database because they are large, and for records that are sent once more alone.
-- Locks: nothing. Index: app_outbox_pkey.
select
    o.outbox_id,
    o.destination,
    o.message_key,
    o.ordering_key,
    o.event_type,
    o.content_type,
    o.claim_count,
    nullif(o.headers, '{}')::json as headers,
    o.payload_json,
    o.payload_bytes,
    null::integer as deferred,
    null::timestamptz as next_run_at,
    null::smallint as lane,
    o.created_at
from :"schema".app_outbox as o
where o.outbox_id = :'outbox_id'::bigint and o.claim_id = :'claim_id'::uuid and o.status = 'PROCESSING'
