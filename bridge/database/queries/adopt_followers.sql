-- Finds parked followers whose key nothing holds any more (a hold deleted by hand, a restore of some
-- tables) and gives their keys a released hold, so that they come back in order, step by step.
-- Returns how many keys.
-- Locks: nothing but the new holds. Index: app_outbox_pkey, app_outbox_hold_pkey; reads all parked
-- entries (app_outbox_queue_parked_idx).
insert into :"schema".app_outbox_hold (
    destination, ordering_key, outbox_id, key_hash, lane, boundary, released_at
)
select
    orphan.destination,
    orphan.ordering_key,
    min(orphan.outbox_id) - 1,
    min(orphan.key_hash),
    min(orphan.lane),
    min(orphan.outbox_id) - 1,
    now()
from (
    select
        q.destination,
        o.ordering_key,
        q.outbox_id,
        q.key_hash,
        q.lane
    from :"schema".app_outbox_queue as q
    inner join :"schema".app_outbox as o on q.outbox_id = o.outbox_id
    where
        q.parked is not null
        and q.parked = 'k'
        and o.destination = q.destination
        and hashtext(o.ordering_key) = q.key_hash
        and not exists (
            select
            from :"schema".app_outbox_hold as h
            where h.destination = o.destination and h.ordering_key = o.ordering_key
            offset 0 -- a look-up for each row, never a join
        )
) as orphan
group by orphan.destination, orphan.ordering_key
on conflict (destination, ordering_key, outbox_id) do nothing
