-- Lists the destinations that have queue entries without and with ordering key, by hopping through the
-- indexes from one name to the next (its cost grows with the number of destinations, not of rows);
-- and tells whether any key is held and whether any row waits to be claimed alone.
-- Locks: nothing.
-- Index: app_outbox_queue_due_idx, app_outbox_queue_lane_idx, app_outbox_queue_alone_idx.
with recursive hop as (
    (
        select q.destination
        from :"schema".app_outbox_queue as q
        where q.lane is null and q.parked is null
        order by q.destination
        limit 1
    )
    union all
    select
        (
            select q.destination
            from :"schema".app_outbox_queue as q
            where q.lane is null and q.parked is null and q.destination > hop.destination
            order by q.destination
            limit 1
        )
    from hop
    where hop.destination is not null
),

ordered_hop as (
    (
        select q.destination
        from :"schema".app_outbox_queue as q
        where q.lane is not null and q.parked is null
        order by q.destination
        limit 1
    )
    union all
    select
        (
            select q.destination
            from :"schema".app_outbox_queue as q
            where q.lane is not null and q.parked is null and q.destination > ordered_hop.destination
            order by q.destination
            limit 1
        )
    from ordered_hop
    where ordered_hop.destination is not null
)

select
    array(select hop.destination::text from hop where hop.destination is not null) as destinations,
    array(
        select ordered_hop.destination::text
        from ordered_hop
        where ordered_hop.destination is not null
    ) as ordered,
    exists(select from :"schema".app_outbox_hold) as has_holds,
    exists(select from :"schema".app_outbox_queue as q where q.parked = 'p') as has_suspects
