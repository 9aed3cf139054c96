-- Lists the destinations that have queue entries, by hopping through the index from one name to the
-- next (its cost grows with the number of destinations, not of rows), and whether any lane has.
-- Locks: nothing. Index: app_outbox_queue_due_idx, app_outbox_queue_lane_idx.
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
)

select
    array(select hop.destination::text from hop where hop.destination is not null) as destinations,
    exists(select from :"schema".app_outbox_queue as q where q.lane is not null and q.parked is null) as ordered
