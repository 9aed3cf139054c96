-- Reads everything about one row; the payload up to a number of characters or bytes (null: all).
-- Locks: nothing. Index: app_outbox_pkey.
-- next_run_at may be infinite, so it arrives as text.
select
    o.outbox_id,
    o.message_key,
    o.event_type,
    o.destination,
    o.ordering_key,
    o.content_type,
    o.created_at,
    o.headers::text as headers,
    o.max_retry_count,
    o.retry_count,
    to_json(o.next_run_at) #>> '{}' as next_run_at,
    o.last_error_code,
    o.last_error_msg,
    o.status,
    o.claim_count,
    o.sent_partition,
    o.sent_offset,
    o.sent_topic,
    o.locked_by,
    o.locked_at,
    o.claim_id,
    o.sent_at,
    o.updated_at,
    case
        when :'payload_limit'::integer is null then o.payload_json::text
        else pg_catalog.left(o.payload_json::text, :'payload_limit'::integer)
    end as payload_text,
    case
        when :'payload_limit'::integer is null then o.payload_bytes
        else substring(o.payload_bytes from 1 for :'payload_limit'::integer)
    end as payload_bytes,
    coalesce(octet_length(o.payload_json::text), octet_length(o.payload_bytes), 0) as payload_size
from :"schema".app_outbox as o
where o.outbox_id = :'outbox_id'::bigint
