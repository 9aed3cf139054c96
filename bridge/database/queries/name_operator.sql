-- Says for this transaction who acts, by what means and in which request; the audit takes it from there.
-- Locks: nothing; bounds how long the locks that follow are waited for.
select
    pg_catalog.set_config('outbox_bridge.actor', :'actor'::text, true),
    pg_catalog.set_config('outbox_bridge.source', :'source'::text, true),
    pg_catalog.set_config('outbox_bridge.request_id', :'request_id'::text, true),
    pg_catalog.set_config('lock_timeout', :'lock_timeout'::text, true)
