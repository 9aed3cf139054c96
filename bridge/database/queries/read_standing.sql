-- Reads what the side tables know of one row: since when it is FAILED, who has it in hand, whether it
-- holds up its key or waits behind one that does, and how often a relay died with it.
-- Always returns one row.
-- Locks: nothing. Index: app_outbox_failed_pkey, app_outbox_hold_outbox_id_idx,
-- app_outbox_hold_boundary_idx, app_outbox_suspect_pkey, app_outbox_pkey; reads the claims as a whole.
select
    (select f.failed_at from :"schema".app_outbox_failed as f where f.outbox_id = :'outbox_id'::bigint)
        as failed_at,
    (
        select coalesce(r.relay_name, 'relay ' || c.relay_id::text || ', which is gone')
        from :"schema".app_outbox_claim as c
        left join :"schema".app_outbox_relay as r on c.relay_id = r.relay_id
        where :'outbox_id'::bigint = any(c.outbox_ids)
        order by c.claimed_at desc
        limit 1
    ) as claimed_by,
    (
        select h.held_at
        from :"schema".app_outbox_hold as h
        where h.outbox_id = :'outbox_id'::bigint and h.released_at is null
        limit 1
    ) as holds_since,
    (
        select h.outbox_id
        from :"schema".app_outbox_hold as h
        inner join :"schema".app_outbox as o
            on h.destination = o.destination and h.ordering_key = o.ordering_key
        where
            o.outbox_id = :'outbox_id'::bigint
            and h.outbox_id < o.outbox_id
            and h.released_at is null
        order by h.outbox_id
        limit 1
    ) as behind,
    (select s.deaths from :"schema".app_outbox_suspect as s where s.outbox_id = :'outbox_id'::bigint) as deaths
