-- Releases holds whose row is sent, cancelled, deleted or moved to another key, where whoever did that
-- could not see the hold yet; looks at some of the active holds of the given lanes, in the order of
-- outbox_id. Returns the last id looked at (null at the end) and how many were released.
-- Locks: those holds, with SKIP LOCKED. Index: app_outbox_hold_outbox_id_idx, app_outbox_pkey.
with looked as materialized (
    select
        h.ctid as tid,
        h.outbox_id,
        exists(
            select
            from :"schema".app_outbox as o
            where
                o.outbox_id = h.outbox_id
                and o.status in ('PENDING', 'PROCESSING', 'FAILED')
                and o.destination = h.destination
                and o.ordering_key = h.ordering_key
            offset 0 -- a look-up for each row, never a join
        ) as holds
    from :"schema".app_outbox_hold as h
    where
        h.outbox_id > :'after_id'::bigint
        and h.released_at is null
        and h.lane = any(:'lanes'::smallint [])
    order by h.outbox_id
    limit :'row_limit'::integer
    for update of h skip locked
),

released as (
    update :"schema".app_outbox_hold
    set released_at = now()
    where ctid = any(array(select looked.tid from looked where not looked.holds))
    returning outbox_id
)

select
    case when count(*) = :'row_limit'::integer then max(looked.outbox_id) end as last_id,
    (select count(*) from released) as released
from looked
