-- Reads one page of rows of one event type, the latest created first, from a window of so many rows of
-- the type; else as browse_newest. Continues below a time and an id.
-- Locks: nothing. Index: app_outbox_event_type_created_at_idx, walked for the window; rows of one time
-- (one transaction) are sorted by id.
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
        and (:'ordering_key'::text is null or o.ordering_key = :'ordering_key'::text)
        and (:'key_pattern'::text is null or o.message_key like :'key_pattern'::text)
        and (:'error_code'::text is null or o.last_error_code = :'error_code'::text)
        and (:'trace_pattern'::text is null or o.headers ->> 'traceparent' like :'trace_pattern'::text)
            as matches
    from :"schema".app_outbox as o
    where
        o.event_type = :'event_type'::text
        and o.created_at <= :'before_time'::timestamptz
        and (o.created_at, o.outbox_id) < (:'before_time'::timestamptz, :'before'::bigint)
        and o.created_at >= :'created_from'::timestamptz
        and o.created_at < :'created_to'::timestamptz
    order by o.created_at desc, o.outbox_id desc
    limit :'window_rows'::integer
),

bounds as (
    select
        count(*) as looked,
        count(*) filter (where looked.matches) as matched,
        (select l.outbox_id from looked as l order by l.created_at asc, l.outbox_id asc limit 1) as lowest,
        min(looked.created_at) as earliest
    from looked
),

page as (
    select looked.*
    from looked
    where looked.matches
    order by looked.created_at desc, looked.outbox_id desc
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
order by page.created_at desc, page.outbox_id desc
