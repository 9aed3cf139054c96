-- Lists the registered relays, oldest first: since when each is silent (seconds), whether its
-- session still holds the lock that says it lives (null for a relay behind a transaction pooler, which
-- has none, and on a standby, which does not see the primary's locks), and how many batches it has claimed.
-- Locks: nothing. The tables are small.
select
    r.relay_id,
    r.relay_name,
    r.host,
    r.pid,
    r.version,
    r.stopping,
    r.started_at,
    r.heartbeat_at,
    greatest(0, extract(epoch from statement_timestamp() - r.heartbeat_at))::float8 as silent_seconds,
    r.lease_seconds,
    case when r.has_lock and not pg_catalog.pg_is_in_recovery() then exists (
        select
        from pg_catalog.pg_locks as l
        where
            l.locktype = 'advisory'
            and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
            and l.classid = :'relay_class'::integer::oid
            and l.objid = r.relay_id::oid
            and l.objsubid = 2
            and l.granted
    ) end as has_session,
    (select count(*) from :"schema".app_outbox_claim as c where c.relay_id = r.relay_id) as claims
from :"schema".app_outbox_relay as r
order by r.relay_id
