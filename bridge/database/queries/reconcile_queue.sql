-- Gives PENDING rows of an id range a queue entry where they have none (a restore with triggers off).
-- Locks: nothing but the new entries; a second entry for one row is harmless.
-- Parked entries count: adopt_followers.sql finds those that nobody would bring back.
-- Index: app_outbox_pkey for the range, app_outbox_queue_due_idx, app_outbox_queue_lane_idx and
-- app_outbox_queue_parked_idx for the look-up.
insert into :"schema".app_outbox_queue (outbox_id, destination, next_run_at, lane, key_hash)
select
    o.outbox_id,
    o.destination,
    o.next_run_at,
    (hashtext(o.ordering_key) & 63)::smallint,
    hashtext(o.ordering_key)
from :"schema".app_outbox as o
where
    o.outbox_id between :'first_id'::bigint and :'last_id'::bigint
    and o.status = 'PENDING'
    and not exists (
        select
        from :"schema".app_outbox_queue as q
        where
            o.ordering_key is null
            and q.lane is null
            and q.parked is null
            and q.destination = o.destination
            and q.next_run_at = o.next_run_at
            and q.outbox_id = o.outbox_id
        offset 0 -- a look-up for each row, never a join
    )
    and not exists (
        select
        from :"schema".app_outbox_queue as q
        where
            o.ordering_key is not null
            and q.lane = (hashtext(o.ordering_key) & 63)::smallint
            and q.parked is null
            and q.outbox_id = o.outbox_id
            and q.next_run_at = o.next_run_at
            and q.destination = o.destination
        offset 0
    )
    and not exists (
        select
        from :"schema".app_outbox_queue as q
        where
            q.parked is not null
            and q.destination = o.destination
            and q.key_hash = hashtext(o.ordering_key)
            and q.outbox_id = o.outbox_id
            and q.next_run_at = o.next_run_at
        offset 0
    )
    and not exists (
        select
        from :"schema".app_outbox_queue as q
        where
            o.ordering_key is null
            and q.parked is not null
            and q.destination = o.destination
            and q.key_hash is null
            and q.outbox_id = o.outbox_id
            and q.next_run_at = o.next_run_at
        offset 0
    )
