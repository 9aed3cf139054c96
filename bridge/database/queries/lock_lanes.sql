-- Locks the lanes of a relay that is about to be buried. Claims hold their lanes shared: what this
-- relay claimed until now is visible to the statements that follow, and later claims of it find
-- their lanes gone.
-- Locks: the lane rows. The lane table has 64 rows.
select l.lane
from :"schema".app_outbox_lane as l
where l.relay_id = :'relay_id'::integer
order by l.lane
for update of l
