-- Finds rows that an action on PENDING, PROCESSING or FAILED rows would change, by ascending id, by way of
-- the side tables: those that hold a key for `skip`, those of the claims that may be released for `release`.
-- Null filters match everything. Kept apart by union all, so that a list of FAILED rows alone is read in
-- the order of its primary key; a queue entry may stand there twice.
-- Locks: nothing. Index: app_outbox_pkey, app_outbox_failed_pkey; reads the narrow side tables as a whole.
with candidate as (
    select distinct q.outbox_id
    from :"schema".app_outbox_queue as q
    where :'action'::text <> 'skip' and 'PENDING' = any(:'statuses'::text [])
    union all
    select f.outbox_id
    from :"schema".app_outbox_failed as f
    where :'action'::text <> 'skip' and 'FAILED' = any(:'statuses'::text [])
    union all
    select distinct h.outbox_id
    from :"schema".app_outbox_hold as h
    where :'action'::text = 'skip' and h.released_at is null
    union all
    select claimed.outbox_id
    from :"schema".app_outbox_claim as c
    cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
    where 'PROCESSING' = any(:'statuses'::text [])
)

select
    o.outbox_id,
    o.status,
    o.destination,
    o.event_type,
    o.message_key,
    o.ordering_key,
    o.created_at,
    o.claim_count,
    o.last_error_code
from candidate
inner join :"schema".app_outbox as o on candidate.outbox_id = o.outbox_id
where
    o.outbox_id > :'after'::bigint
    and o.outbox_id <= :'until'::bigint
    and o.status = any(:'statuses'::text [])
    and (:'destination'::text is null or o.destination = :'destination'::text)
    and (:'event_type'::text is null or o.event_type = :'event_type'::text)
    and (:'key_pattern'::text is null or o.message_key like :'key_pattern'::text)
    and (:'ordering_key'::text is null or o.ordering_key = :'ordering_key'::text)
    and (:'error_code'::text is null or o.last_error_code = :'error_code'::text)
    and (:'created_from'::timestamptz is null or o.created_at >= :'created_from'::timestamptz)
    and (:'created_to'::timestamptz is null or o.created_at < :'created_to'::timestamptz)
    and (
        :'trace_id'::text is null
        or substr(o.headers ->> 'traceparent', 4, 32) = :'trace_id'::text
    )
    and case
        when :'action'::text in ('send now', 'release', 'edit')
            then :"schema".app_outbox_obstacle(:'action'::text, o.outbox_id, :'options'::jsonb) is null
        else true
    end
order by o.outbox_id
limit :'row_limit'::integer
