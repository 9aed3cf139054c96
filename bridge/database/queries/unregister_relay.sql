-- Removes a relay that settled or released everything, and frees its lanes.
-- Locks: its row and its lanes. Index: app_outbox_relay_pkey; the lane table has 64 rows.
with freed as (
    update :"schema".app_outbox_lane
    set relay_id = null, epoch = epoch + 1, changed_at = now()
    where relay_id = :'relay_id'::integer
)

delete from :"schema".app_outbox_relay
where
    relay_id = :'relay_id'::integer
    and not exists (select from :"schema".app_outbox_claim as c where c.relay_id = :'relay_id'::integer)
