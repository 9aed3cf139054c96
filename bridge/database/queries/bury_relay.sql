-- Removes a dead relay whose claims are all taken back, and frees its lanes: in the transaction of
-- the rescue, so that no lane moves while rows of it are in flight.
-- Locks: its row and its lanes (lock_lanes.sql already holds them). The tables are small.
with gone as (
    delete from :"schema".app_outbox_relay
    where
        relay_id = :'relay_id'::integer
        and not exists (select from :"schema".app_outbox_claim as c where c.relay_id = :'relay_id'::integer)
)

update :"schema".app_outbox_lane
set relay_id = null, epoch = epoch + 1, changed_at = now()
where
    relay_id = :'relay_id'::integer
    and not exists (select from :"schema".app_outbox_claim as c where c.relay_id = :'relay_id'::integer)
