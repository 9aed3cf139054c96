-- Says for this transaction who acts, and by what means; the audit takes it from there.
-- Locks: nothing; waits at most ten seconds for the locks that follow.
select
    pg_catalog.set_config('outbox_bridge.actor', :'actor'::text, true),
    pg_catalog.set_config('outbox_bridge.source', :'source'::text, true),
    pg_catalog.set_config('lock_timeout', '10s', true)
