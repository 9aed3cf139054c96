-- Looks at the next rows by id and tells which of them have been at their end for long enough: how many
-- rows were looked at, the last id, how many were enqueued long enough ago for any of the limits, how
-- many will be prunable by growing older alone (or are under way for at most a day longer than that),
-- and ids and states of those that may go. A limit of null keeps such rows.
-- Locks: nothing. Index: app_outbox_pkey, from one id on; so many rows and no more.
with step as materialized (
    select
        o.outbox_id,
        o.status,
        o.created_at,
        case when o.status = 'SENT' then coalesce(o.sent_at, o.updated_at) else o.updated_at end as ended_at,
        case
            when o.status in ('SENT', 'CANCELLED') then :'sent_seconds'::float8
            when o.status = 'FAILED' then :'failed_seconds'::float8
        end as seconds
    from :"schema".app_outbox as o
    where o.outbox_id > :'after_id'::bigint
    order by o.outbox_id
    limit :'step_rows'::integer
),

judged as materialized (
    select
        s.outbox_id,
        s.status,
        coalesce(s.ended_at < now() - s.seconds * interval '1 second', false) as may_go,
        case
            when s.status in ('PENDING', 'PROCESSING') then s.created_at > l.enqueued - interval '1 day'
            else coalesce(s.ended_at >= now() - s.seconds * interval '1 second', false)
        end as is_to_come,
        s.created_at < l.enqueued as is_old
    from step as s
    cross join (
        select now() - least(:'sent_seconds'::float8, :'failed_seconds'::float8) * interval '1 second' as enqueued
    ) as l
)

select
    count(*) as looked_at,
    max(j.outbox_id) as last_id,
    count(*) filter (where j.is_old) as old_rows,
    count(*) filter (where j.is_to_come) as rows_to_come,
    coalesce(array_agg(j.outbox_id order by j.outbox_id) filter (where j.may_go), '{}') as outbox_ids,
    coalesce(array_agg(j.status::text order by j.outbox_id) filter (where j.may_go), '{}') as statuses
from judged as j
