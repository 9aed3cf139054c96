-- Lists the registered relays, oldest first: whether each lives, since when it is silent (seconds), how
-- many batches it has claimed, and the destinations that fail for it.
-- Locks: nothing. The tables are small.
select
    r.relay_id,
    r.relay_name,
    r.host,
    r.pid,
    r.version,
    r.state,
    r.started_at,
    r.heartbeat_at,
    r.silent_seconds,
    r.lease_seconds,
    r.has_session,
    r.claims,
    r.failing
from :"schema".outbox_relays as r
order by r.relay_id
