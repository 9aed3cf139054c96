-- Messages newer than a known one, for tests. Where that one is gone or another has its id (the table
-- was emptied), all of them.
-- Payload and headers come as UTF-8 whatever the client's encoding and codecs.
-- Locks nothing. Index: app_outbox_pkey.
select
    o.outbox_id,
    o.message_key,
    o.event_type,
    o.destination,
    o.ordering_key,
    o.content_type,
    pg_catalog.convert_to(o.headers::pg_catalog.text, 'UTF8'),
    pg_catalog.convert_to(o.payload_json::pg_catalog.text, 'UTF8'),
    o.payload_bytes,
    o.status,
    o.next_run_at operator (pg_catalog.>) pg_catalog.now()
from :"schema".app_outbox as o
where
    o.outbox_id operator (pg_catalog.>) coalesce(
        (
            select known.outbox_id
            from :"schema".app_outbox as known
            where
                known.outbox_id operator (pg_catalog.=) :'outbox_id'::pg_catalog.int8
                and known.message_key operator (pg_catalog.=) :'message_key'::pg_catalog.text
        ),
        0
    )
order by o.outbox_id
