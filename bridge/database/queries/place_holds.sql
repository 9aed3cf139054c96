-- Holds the keys of the given rows: rows of a key behind them wait. A hold that was released and whose
-- row has failed again holds anew.
-- The state stands in a case, else the planner may walk over all released holds.
-- Locks: the holds, with SKIP LOCKED; the caller has the rows locked.
-- Index: app_outbox_pkey, app_outbox_hold_pkey, app_outbox_hold_outbox_id_idx.
with again as (
    update :"schema".app_outbox_hold
    set released_at = null, boundary = outbox_id, held_at = now()
    where
        ctid = any(
            array(
                select h.ctid
                from :"schema".app_outbox_hold as h
                where
                    h.outbox_id = any(:'outbox_ids'::bigint [])
                    and case when h.released_at is not null then true else false end
                for update of h skip locked
            )
        )
)

insert into :"schema".app_outbox_hold (
    destination, ordering_key, outbox_id, key_hash, lane, boundary, error_code
)
select
    o.destination,
    o.ordering_key,
    o.outbox_id,
    hashtext(o.ordering_key),
    (hashtext(o.ordering_key) & 63)::smallint,
    o.outbox_id as boundary,
    o.last_error_code
from :"schema".app_outbox as o
where o.outbox_id = any(:'outbox_ids'::bigint []) and o.ordering_key is not null
on conflict (destination, ordering_key, outbox_id) do nothing
