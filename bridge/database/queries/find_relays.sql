-- Lists the other relays, how long ago each last gave a sign of life (seconds), whether a session lock
-- tells of its life, and the relay_ids that still have claims without being registered.
-- Locks: nothing. The tables are small.
select
    r.relay_id,
    r.relay_name,
    extract(epoch from now() - r.heartbeat_at)::float8 as silent_seconds,
    r.lease_seconds,
    r.has_lock
from :"schema".app_outbox_relay as r
where r.relay_id <> :'relay_id'::integer
union all
select distinct
    c.relay_id,
    'unregistered',
    'infinity'::float8,
    0,
    true
from :"schema".app_outbox_claim as c
where not exists (select from :"schema".app_outbox_relay as r where r.relay_id = c.relay_id)
