-- Counts entries of the list of FAILED rows whose row is not FAILED, and parked followers whose key
-- nothing holds; looks at the given number of entries of each.
-- Locks: nothing. Index: app_outbox_pkey, app_outbox_hold_boundary_idx.
select
    (
        select count(*)
        from (
            select f.outbox_id
            from :"schema".app_outbox_failed as f
            order by f.outbox_id desc
            limit :'row_limit'::integer
        ) as listed
        where not exists (
            select
            from :"schema".app_outbox as o
            where o.outbox_id = listed.outbox_id and o.status = 'FAILED'
            offset 0 -- a look-up for each row, never a join
        )
    ) as mislisted,
    (
        select count(*)
        from (
            select
                q.outbox_id,
                q.destination,
                q.key_hash
            from :"schema".app_outbox_queue as q
            where q.parked = 'k'
            limit :'row_limit'::integer
        ) as parked
        where
            not exists (
                select
                from :"schema".app_outbox_hold as h
                where h.destination = parked.destination and h.key_hash = parked.key_hash
                offset 0
            )
            and exists (
                select
                from :"schema".app_outbox as o
                where o.outbox_id = parked.outbox_id and o.status = 'PENDING'
                offset 0
            )
    ) as stranded
