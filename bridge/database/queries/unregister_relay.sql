-- Removes a relay that settled or released everything, and frees its lanes; one that has claims left
-- stays for the others to bury.
-- Locks: its row and its lanes. Index: app_outbox_relay_pkey; the lane table has 64 rows.
with gone as (
    delete from :"schema".app_outbox_relay
    where
        relay_id = :'relay_id'::integer
        and not exists (select from :"schema".app_outbox_claim as c where c.relay_id = :'relay_id'::integer)
    returning relay_id
)

update :"schema".app_outbox_lane as l
set relay_id = null, epoch = l.epoch + 1, changed_at = now()
from gone
where l.relay_id = gone.relay_id
