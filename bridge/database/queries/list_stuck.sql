-- Counts the claimed rows that are not settled in time, by relay.
-- Locks: nothing. Index: app_outbox_pkey; reads the claims as a whole.
select
    s.relay_id,
    s.relay_name,
    s.relay_state,
    count(*) as messages,
    max(s.claimed_seconds) as oldest_seconds
from :"schema".outbox_stuck as s
group by s.relay_id, s.relay_name, s.relay_state
order by oldest_seconds desc
