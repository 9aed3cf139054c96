-- Reads one page of rows of any status below an id, newest first, from a window of so many rows; says
-- how many rows were looked at, how many of them match, and the lowest id looked at.
-- Without a filter the window is the page. A filter that no index serves is looked for within the window
-- alone: status, destination and headers are in no index on purpose.
-- Always returns a row: without a match its outbox_id is null.
-- Locks: nothing. Index: app_outbox_pkey, walked for the window.
with looked as materialized (
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
        (:'statuses'::text [] is null or o.status = any(:'statuses'::text []))
        and (:'destination'::text is null or o.destination = :'destination'::text)
        and (:'event_type'::text is null or o.event_type = :'event_type'::text)
        and (:'ordering_key'::text is null or o.ordering_key = :'ordering_key'::text)
        and (:'key_pattern'::text is null or o.message_key like :'key_pattern'::text)
        and (:'error_code'::text is null or o.last_error_code = :'error_code'::text)
        and (:'created_from'::timestamptz is null or o.created_at >= :'created_from'::timestamptz)
        and (:'created_to'::timestamptz is null or o.created_at < :'created_to'::timestamptz)
        and (:'trace_pattern'::text is null or o.headers ->> 'traceparent' like :'trace_pattern'::text)
            as matches
    from :"schema".app_outbox as o
    where
        o.outbox_id < :'before'::bigint
        and o.outbox_id >= :'floor'::bigint
    order by o.outbox_id desc
    limit :'window_rows'::integer
),

bounds as (
    select
        count(*) as looked,
        count(*) filter (where looked.matches) as matched,
        min(looked.outbox_id) as lowest,
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
