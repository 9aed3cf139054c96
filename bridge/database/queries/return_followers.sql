-- Lets followers of released heads come back, one step: at most so many entries in all and of a key, for
-- each key in the order of outbox_id, and not beyond the next row that holds the key. The boundary moves
-- up with them, so that a new follower never overtakes a parked one; a hold goes when nothing is left
-- behind it, and stands last in the line after each step until then.
-- Run by the owner of the lanes in the thread that claims, so that nothing is parked meanwhile.
-- Of several holds of a key the one with the lowest boundary decides; a released one that stands behind
-- another is of no use and goes at once.
-- Returns how many entries came back, how many holds went, whether there were any, and how many moved.
-- Locks: the lane rows FOR SHARE, the holds with SKIP LOCKED, the queue entries.
-- Index: app_outbox_hold_released_idx, app_outbox_hold_pkey, app_outbox_queue_parked_idx, app_outbox_pkey.
-- noqa: disable=layout.indent
with owned as materialized (
    select l.lane
    from :"schema".app_outbox_lane as l
    where l.lane = any(:'lanes'::smallint []) and l.relay_id = :'relay_id'::integer
    order by l.lane
    for share of l
),

released as materialized (
    select
        h.ctid as tid,
        h.destination,
        h.ordering_key,
        h.key_hash,
        h.boundary,
        exists(
            select
            from :"schema".app_outbox_hold as other
            where
                other.destination = h.destination
                and other.ordering_key = h.ordering_key
                and (other.boundary, other.outbox_id) < (h.boundary, h.outbox_id)
            offset 0 -- a look-up for each row, never a join
        ) as is_behind,
        (
            select min(other.outbox_id)
            from :"schema".app_outbox_hold as other
            where
                other.destination = h.destination
                and other.ordering_key = h.ordering_key
                and other.released_at is null
        ) as next_id
    from :"schema".app_outbox_hold as h
    where h.released_at is not null and h.lane in (select owned.lane from owned)
    order by h.released_at
    limit :'hold_limit'::integer
    for update of h skip locked
),

follower as materialized (
    select
        released.tid as hold_tid,
        entry.tid,
        entry.outbox_id
    from released
    cross join lateral (
        select
            q.ctid as tid,
            q.outbox_id
        from :"schema".app_outbox_queue as q
        where
            not released.is_behind
            and q.destination = released.destination
            and q.key_hash = released.key_hash
            and q.outbox_id > released.boundary
            and q.outbox_id <= coalesce(released.next_id, 9223372036854775807)
            and q.parked is not null
            and q.parked = 'k'
            -- All but those of another key with the same hash.
            and not exists (
                select
                from :"schema".app_outbox as o
                where
                    o.outbox_id = q.outbox_id
                    and o.destination = q.destination
                    and o.ordering_key <> released.ordering_key
                    and hashtext(o.ordering_key) = q.key_hash
                offset 0
            )
        order by q.outbox_id
        limit :'key_step'::integer
    ) as entry
    limit :'step'::integer
),

returned as (
    update :"schema".app_outbox_queue
    set parked = null
    where ctid = any(array(select follower.tid from follower))
    returning outbox_id
),

reached as materialized (
    select
        follower.hold_tid,
        max(follower.outbox_id) as boundary
    from follower
    group by follower.hold_tid
),

ended as materialized (
    select released.tid
    from released
    left join reached on released.tid = reached.hold_tid
    where
        released.is_behind
        or not exists (
            select
            from :"schema".app_outbox_queue as q
            where
                q.destination = released.destination
                and q.key_hash = released.key_hash
                and q.outbox_id > coalesce(reached.boundary, released.boundary)
                and q.outbox_id <= coalesce(released.next_id, 9223372036854775807)
                and q.parked is not null
                and q.parked = 'k'
                and not exists (
                    select
                    from :"schema".app_outbox as o
                    where
                        o.outbox_id = q.outbox_id
                        and o.destination = q.destination
                        and o.ordering_key <> released.ordering_key
                        and hashtext(o.ordering_key) = q.key_hash
                    offset 0
                )
            offset 0
        )
),

gone as (
    delete from :"schema".app_outbox_hold
    where ctid = any(array(select ended.tid from ended))
    returning outbox_id
),

moved as (
    update :"schema".app_outbox_hold as h
    set boundary = reached.boundary, released_at = clock_timestamp()
    from reached
    where h.ctid = reached.hold_tid and reached.hold_tid not in (select ended.tid from ended)
    returning h.outbox_id
)

select
    (select count(*) from returned) as returned,
    (select count(*) from gone) as gone,
    exists(select from released) as has_more,
    (select count(*) from moved) as moved
