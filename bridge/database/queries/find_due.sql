-- Tells whether any row is due, whoever may have it locked, or about to come back behind a released
-- head, to a destination that no switch closes: those in `exceptions` are open where the others are
-- `closed`, and the other way round. Followers of a held key are not due.
-- Locks: nothing. Index: app_outbox_pkey, app_outbox_hold_pkey; reads the queue as a whole, so it is
-- asked only when a claim found nothing.
select
    exists (
        select
        from :"schema".app_outbox_queue as q
        inner join :"schema".app_outbox as o on q.outbox_id = o.outbox_id
        where
            (q.parked is null or q.parked = 'p')
            and q.next_run_at <= now()
            and (q.destination = any(:'exceptions'::text [])) = :'closed'::boolean
            and case when o.status = 'PENDING' and o.next_run_at <= now() then true else false end
            and not exists (
                select
                from :"schema".app_outbox_hold as h
                where
                    q.parked = 'p'
                    and h.destination = o.destination
                    and h.ordering_key = o.ordering_key
                    and h.boundary < q.outbox_id
                offset 0 -- a look-up for each row, never a join
            )
    )
    or exists (
        select
        from :"schema".app_outbox_hold as h
        where
            h.released_at is not null
            and (h.destination = any(:'exceptions'::text [])) = :'closed'::boolean
    ) as due
