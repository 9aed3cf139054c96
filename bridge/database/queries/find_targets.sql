-- Finds rows that an action on PENDING, PROCESSING or FAILED rows would change, by ascending id, by way of
-- the side tables: those that hold a key for `skip`, those of the claims that may be released for `release`.
-- Null filters match everything. A queue entry may stand there twice.
-- Each row is looked up by its key, whatever statistics say (offset 0): never a walk over the outbox.
-- Locks: nothing. Index: app_outbox_pkey; reads the narrow side tables as a whole.
-- The linter misreads a limit behind a LATERAL.
-- noqa: disable=layout.indent
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
    target.outbox_id,
    target.status,
    target.destination,
    target.event_type,
    target.message_key,
    target.ordering_key,
    target.created_at,
    target.claim_count,
    target.last_error_code
from candidate
cross join lateral (
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
    from :"schema".app_outbox as o
    where
        o.outbox_id = candidate.outbox_id
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
    offset 0
) as target
where candidate.outbox_id > :'after'::bigint and candidate.outbox_id <= :'until'::bigint
order by target.outbox_id
limit :'row_limit'::integer
