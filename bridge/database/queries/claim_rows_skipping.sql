-- claim_rows.sql without waiting: used for a while after its lock time-out struck.
-- Locks: queue entries and outbox rows, both with SKIP LOCKED. A row locked by somebody else keeps
-- its entry; an entry whose row was deleted stays for claim_rows.sql to throw away.
-- Index: app_outbox_queue_due_idx, app_outbox_pkey.
-- The entry is a hint: the row's status, next_run_at and ordering_key decide, stale entries are thrown
-- away. Where there were any, the last row has no outbox_id and tells their number as `deferred`.
-- They stand in a case, which the planner does not estimate (see settle_sent.sql).
-- Times travel as microseconds since 2000-01-01 UTC, the lowest bigint stands for -infinity.
-- The linter misreads a limit behind a LATERAL, and does not count the columns of `*`.
-- noqa: disable=layout.indent,ambiguous.set_columns
with due as materialized (
    select
        entry.tid,
        entry.outbox_id,
        entry.next_run_at
    from
        unnest(
            :'destinations'::text [], :'after_times'::bigint [], :'after_ids'::bigint [], :'quotas'::integer []
        ) as target (destination, after_time, after_id, quota)
    cross join lateral (
        select
            q.ctid as tid,
            q.outbox_id,
            q.next_run_at
        from :"schema".app_outbox_queue as q
        inner join :"schema".app_outbox as held on q.outbox_id = held.outbox_id
        where
            q.destination = target.destination
            and q.lane is null
            and q.parked is null
            and q.next_run_at <= now()
            and (q.next_run_at, q.outbox_id) > (
                case
                    when target.after_time = -9223372036854775808 then '-infinity'
                    else timestamptz '2000-01-01 00:00:00+00' + target.after_time * interval '1 microsecond'
                end,
                target.after_id
            )
        order by q.next_run_at, q.outbox_id
        limit target.quota
        for update of q, held skip locked
    ) as entry
    limit :'batch_rows'::integer
),

taken as (
    delete from :"schema".app_outbox_queue
    where ctid = any(array(select due.tid from due))
),

claimed as (
    update :"schema".app_outbox as o
    set
        status = 'PROCESSING',
        locked_by = :'relay_name',
        locked_at = now(),
        updated_at = now(),
        claim_id = :'claim_id'::uuid,
        claim_count = o.claim_count + 1,
        sent_partition = -1,
        sent_offset = -1
    from due
    where
        o.outbox_id = due.outbox_id
        and case when o.status = 'PENDING' and o.next_run_at <= now() and o.ordering_key is null then true else false end
    returning
        o.outbox_id, o.destination, o.message_key, o.ordering_key, o.event_type, o.content_type, o.claim_count,
        nullif(o.headers, '{}')::json as headers,
        case
            when pg_column_size(o.payload_json) < 2000 or octet_length(o.payload_json::text) <= :'inline_bytes'::integer
                then o.payload_json
        end as payload_json,
        case when octet_length(o.payload_bytes) <= :'inline_bytes'::integer then o.payload_bytes end as payload_bytes,
        case
            when pg_column_size(o.payload_json) >= 2000 or o.payload_bytes is not null
                then nullif(
                    greatest(octet_length(o.payload_json::text), octet_length(o.payload_bytes), :'inline_bytes'::integer),
                    :'inline_bytes'::integer
                )
        end as deferred,
        due.next_run_at,
        null::smallint as lane,
        o.created_at
),

recorded as (
    insert into :"schema".app_outbox_claim (claim_id, relay_id, outbox_ids)
    select
        :'claim_id'::uuid,
        :'relay_id'::integer,
        array_agg(claimed.outbox_id)
    from claimed
    having count(*) > 0
)

select * from claimed
union all
select
    null,
    null,
    null,
    null,
    null,
    null,
    null,
    null,
    null,
    null,
    ((select count(*) from due) - (select count(*) from claimed))::integer,
    null,
    null,
    null
where (select count(*) from due) > (select count(*) from claimed)
