-- Counts waiting rows by destination up to a limit each, from the queue's indexes alone: what the exact
-- count would cost with a backlog of millions. An entry may be stale for a moment, so this is a sketch.
-- due_since: since when the longest waiting due row could have gone out, or null; of ordered rows the
-- first of each lane is looked at.
-- Locks: nothing.
-- Index: app_outbox_queue_due_idx, app_outbox_queue_lane_idx, app_outbox_queue_parked_idx,
-- app_outbox_pkey; hops from one destination to the next.
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
),

parked_hop as (
    (
        select q.destination
        from :"schema".app_outbox_queue as q
        where q.parked is not null
        order by q.destination
        limit 1
    )
    union all
    select
        (
            select q.destination
            from :"schema".app_outbox_queue as q
            where q.parked is not null and q.destination > parked_hop.destination
            order by q.destination
            limit 1
        )
    from parked_hop
    where parked_hop.destination is not null
),

named as (
    select hop.destination from hop where hop.destination is not null
    union
    select ordered_hop.destination from ordered_hop where ordered_hop.destination is not null
    union
    select parked_hop.destination from parked_hop where parked_hop.destination is not null
)

select
    named.destination::text as destination,
    unordered.entries + ordered.entries + parked.entries as waiting,
    least(unordered.due_since, lanes.due_since) as due_since
from named
cross join
    lateral (
        select
            count(*) as entries,
            min(first_entries.next_run_at) filter (
                where first_entries.next_run_at <= statement_timestamp() and isfinite(first_entries.next_run_at)
            ) as due_since
        from (
            select q.next_run_at
            from :"schema".app_outbox_queue as q
            where q.destination = named.destination and q.lane is null and q.parked is null
            order by q.next_run_at
            limit :'row_limit'::integer
        ) as first_entries
    ) as unordered
cross join
    lateral (
        select count(*) as entries
        from (
            select
            from :"schema".app_outbox_queue as q
            where q.destination = named.destination and q.lane is not null and q.parked is null
            limit :'row_limit'::integer
        ) as first_entries
    ) as ordered
cross join
    lateral (
        select count(*) as entries
        from (
            select
            from :"schema".app_outbox_queue as q
            where q.destination = named.destination and q.parked is not null
            limit :'row_limit'::integer
        ) as first_entries
    ) as parked
cross join
    lateral (
        select min(greatest(o.created_at, o.next_run_at)) as due_since
        from :"schema".app_outbox_lane as l
        cross join
            lateral (
                select q.outbox_id
                from :"schema".app_outbox_queue as q
                where q.destination = named.destination and q.lane = l.lane and q.parked is null
                order by q.outbox_id
                limit 1
            ) as first_entry
        inner join :"schema".app_outbox as o on first_entry.outbox_id = o.outbox_id
        where o.status in ('PENDING', 'PROCESSING') and o.next_run_at <= statement_timestamp() and isfinite(o.next_run_at)
    ) as lanes
