-- Tells which relay does the duties that one does for all: the one that has been registered for the
-- longest and lives. No session lock, which a transaction pooler would not keep; two that take each
-- other for the leader for a moment do work twice, not wrong.
-- Locks: nothing. The table is small.
select min(r.relay_id)
from :"schema".app_outbox_relay as r
where not r.stopping and r.heartbeat_at > now() - r.lease_seconds * interval '1 second'
