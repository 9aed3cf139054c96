-- Counts held keys and the rows parked behind held keys, by destination.
-- Locks: nothing. Index: app_outbox_queue_parked_idx; reads all holds.
with held as (
    select
        h.destination,
        count(distinct h.ordering_key) as keys_held
    from :"schema".app_outbox_hold as h
    where h.released_at is null
    group by h.destination
),

parked as (
    select
        q.destination,
        count(*) as followers
    from :"schema".app_outbox_queue as q
    where q.parked = 'k'
    group by q.destination
)

select
    coalesce(held.destination, parked.destination) as destination,
    coalesce(held.keys_held, 0) as keys_held,
    coalesce(parked.followers, 0) as followers
from held
full join parked on held.destination = parked.destination
