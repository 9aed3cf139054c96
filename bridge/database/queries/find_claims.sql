-- Lists the claims of one relay, or with relay_id null all that are older than the stuck time-out.
-- Locks: nothing. The table holds what is in flight.
select c.claim_id
from :"schema".app_outbox_claim as c
where
    c.relay_id = :'relay_id'::integer
    or (
        :'relay_id'::integer is null
        and c.claimed_at < now() - :'stuck_seconds'::float8 * interval '1 second'
    )
order by c.claimed_at
