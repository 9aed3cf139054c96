-- Lists the rows that a relay of this name has claimed and not settled.
-- Locks: nothing. Index: app_outbox_pkey.
select o.outbox_id
from :"schema".app_outbox_relay as r
inner join :"schema".app_outbox_claim as c on r.relay_id = c.relay_id
cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
inner join :"schema".app_outbox as o on claimed.outbox_id = o.outbox_id
where r.relay_name = :'relay_name' and r.pid = :'pid'::integer and o.claim_id = c.claim_id and o.status = 'PROCESSING'
order by o.outbox_id
