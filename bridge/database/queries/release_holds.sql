-- Lets the followers of the given rows go, though these were not sent.
-- Locks: their holds, with SKIP LOCKED. Index: app_outbox_hold_outbox_id_idx.
update :"schema".app_outbox_hold
set released_at = now()
where
    ctid = any(
        array(
            select h.ctid
            from :"schema".app_outbox_hold as h
            where h.outbox_id = any(:'outbox_ids'::bigint []) and h.released_at is null
            for update of h skip locked
        )
    )
