-- Looks at the next rows by id and tells which of them have been at their end for long enough: how many
-- rows were looked at, the last id, how many were enqueued long enough ago for any of the limits, and
-- ids and states of those that may go. A limit of null keeps such rows.
-- Locks: nothing. Index: app_outbox_pkey, from one id on; so many rows and no more.
with step as materialized (
    select
        o.outbox_id,
        o.status,
        o.created_at,
        case when o.status = 'SENT' then coalesce(o.sent_at, o.updated_at) else o.updated_at end as ended_at
    from :"schema".app_outbox as o
    where o.outbox_id > :'after_id'::bigint
    order by o.outbox_id
    limit :'step_rows'::integer
),

ended as materialized (
    select
        s.outbox_id,
        s.status
    from step as s
    where
        (
            s.status in ('SENT', 'CANCELLED')
            and s.ended_at < now() - :'sent_seconds'::float8 * interval '1 second'
        )
        or (
            s.status = 'FAILED'
            and s.ended_at < now() - :'failed_seconds'::float8 * interval '1 second'
        )
)

select
    (select count(*) from step) as looked_at,
    (select max(s.outbox_id) from step as s) as last_id,
    (
        select count(*)
        from step as s
        where
            s.created_at
            < now() - least(:'sent_seconds'::float8, :'failed_seconds'::float8) * interval '1 second'
    ) as old_rows,
    (select coalesce(array_agg(e.outbox_id order by e.outbox_id), '{}') from ended as e) as outbox_ids,
    (select coalesce(array_agg(e.status::text order by e.outbox_id), '{}') from ended as e) as statuses
