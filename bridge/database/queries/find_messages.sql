-- What stands under these keys: the rows that absorbed duplicates.
-- The payload comes as UTF-8 whatever the client's encoding.
-- Locks nothing. Index: app_outbox_message_key_key.
select
    o.message_key,
    o.outbox_id,
    o.destination,
    o.event_type,
    o.ordering_key,
    o.content_type,
    pg_catalog.convert_to(o.payload_json::pg_catalog.text, 'UTF8'),
    o.payload_bytes
from :"schema".app_outbox as o
where o.message_key operator (pg_catalog.=) any(:'message_keys'::pg_catalog.text [])
