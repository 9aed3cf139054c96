-- Reads one page of PENDING, PROCESSING or FAILED rows below an id, newest first, by way of the side
-- tables; else as browse_newest. The row's own status decides: an entry of a side table may be stale.
-- Locks: nothing. Index: app_outbox_pkey; the narrow queue is read as a whole, the list of failed rows
-- by its primary key.
with candidate as (
    (
        select q.outbox_id
        from :"schema".app_outbox_queue as q
        where
            'PENDING' = any(:'statuses'::text [])
            and q.outbox_id < :'before'::bigint
            and (:'destination'::text is null or q.destination = :'destination'::text)
        order by q.outbox_id desc
        limit :'window_rows'::integer
    )
    union
    select claimed.outbox_id
    from :"schema".app_outbox_claim as c
    cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
    where
        'PROCESSING' = any(:'statuses'::text [])
        and claimed.outbox_id < :'before'::bigint
    union
    (
        select f.outbox_id
        from :"schema".app_outbox_failed as f
        where
            'FAILED' = any(:'statuses'::text [])
            and f.outbox_id < :'before'::bigint
            and (:'destination'::text is null or f.destination = :'destination'::text)
            and (:'event_type'::text is null or f.event_type = :'event_type'::text)
            and (:'error_code'::text is null or f.error_code = :'error_code'::text)
        order by f.outbox_id desc
        limit :'window_rows'::integer
    )
),

newest as materialized (
    select candidate.outbox_id
    from candidate
    order by candidate.outbox_id desc
    limit :'window_rows'::integer
),

looked as materialized (
    select
        o.outbox_id,
        o.status,
        o.destination,
        o.event_type,
        o.message_key,
        o.ordering_key,
        o.created_at,
        to_json(o.next_run_at) #>> '{}' as next_run_at,
        o.retry_count,
        o.max_retry_count,
        o.claim_count,
        o.locked_by,
        o.sent_at,
        o.last_error_code,
        o.last_error_msg,
        o.status = any(:'statuses'::text [])
        and (:'destination'::text is null or o.destination = :'destination'::text)
        and (:'event_type'::text is null or o.event_type = :'event_type'::text)
        and (:'ordering_key'::text is null or o.ordering_key = :'ordering_key'::text)
        and (:'key_pattern'::text is null or o.message_key like :'key_pattern'::text)
        and (:'error_code'::text is null or o.last_error_code = :'error_code'::text)
        and (:'created_from'::timestamptz is null or o.created_at >= :'created_from'::timestamptz)
        and (:'created_to'::timestamptz is null or o.created_at < :'created_to'::timestamptz)
        and (:'trace_pattern'::text is null or o.headers ->> 'traceparent' like :'trace_pattern'::text)
            as matches
    from newest
    inner join :"schema".app_outbox as o on newest.outbox_id = o.outbox_id
),

bounds as (
    select
        (select count(*) from newest) as looked,
        count(*) filter (where looked.matches) as matched,
        (select min(newest.outbox_id) from newest) as lowest,
        null::timestamptz as earliest
    from looked
),

page as (
    select looked.*
    from looked
    where looked.matches
    order by looked.outbox_id desc
    limit :'row_limit'::integer
)

select
    bounds.looked,
    bounds.matched,
    bounds.lowest,
    bounds.earliest,
    page.*
from bounds
left join page on true
order by page.outbox_id desc
