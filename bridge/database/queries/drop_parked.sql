-- Throws away parked entries whose row is gone or not PENDING any more, and suspects whose row is gone,
-- SENT or CANCELLED: a claim would, but never meets them.
-- Locks: those entries. Index: app_outbox_pkey; reads all parked entries (app_outbox_queue_parked_idx)
-- and all suspects.
with stale as (
    delete from :"schema".app_outbox_queue
    where
        ctid = any(
            array(
                select q.ctid
                from :"schema".app_outbox_queue as q
                where
                    q.parked is not null
                    and not exists (
                        select
                        from :"schema".app_outbox as o
                        where o.outbox_id = q.outbox_id and o.status = 'PENDING'
                        offset 0 -- a look-up for each row, never a join
                    )
                for update of q skip locked
            )
        )
)

delete from :"schema".app_outbox_suspect as s
where not exists (
    select
    from :"schema".app_outbox as o
    where o.outbox_id = s.outbox_id and o.status not in ('SENT', 'CANCELLED')
    offset 0
)
