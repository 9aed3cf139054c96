-- Claims due rows with ordering key from the lanes this relay owns, in the order of outbox_id.
-- Locks: the lane rows FOR SHARE (a lane moves only between claims), then the outbox rows with
-- SKIP LOCKED. A row that somebody else has locked keeps its place: later rows of its key are
-- left out, so that they do not overtake it.
-- Index: app_outbox_queue_lane_idx, app_outbox_pkey.
-- The lanes are looked at in the order in which they are given, which the caller changes from claim to
-- claim. Stale entries are thrown away and told as by claim_rows.sql.
-- `not in` where `not exists` would do: it is hashed although the session allows no hash joins.
-- The linter misreads a limit behind a LATERAL, and does not count the columns of `*`.
-- noqa: disable=layout.indent,ambiguous.set_columns
with owned as materialized (
    select l.lane
    from :"schema".app_outbox_lane as l
    where l.lane = any(:'lanes'::smallint []) and l.relay_id = :'relay_id'::integer
    order by array_position(:'lanes'::smallint [], l.lane)
    for share of l
),

candidate as materialized (
    select
        entry.tid,
        entry.outbox_id,
        entry.next_run_at,
        entry.lane,
        entry.key_hash
    from owned
    cross join lateral (
        select
            q.ctid as tid,
            q.outbox_id,
            q.next_run_at,
            q.lane,
            q.key_hash
        from :"schema".app_outbox_queue as q
        where q.lane = owned.lane and q.parked is null and q.next_run_at <= now()
        order by q.outbox_id
        limit :'lane_quota'::integer
    ) as entry
    limit :'batch_rows'::integer
),

locked as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where o.outbox_id = any(array(select candidate.outbox_id from candidate))
    for update of o skip locked
),

held as materialized (
    select
        candidate.key_hash,
        min(candidate.outbox_id) as outbox_id
    from candidate
    where
        candidate.outbox_id not in (select locked.outbox_id from locked)
        and exists (select from :"schema".app_outbox as o where o.outbox_id = candidate.outbox_id)
    group by candidate.key_hash
),

due as materialized (
    select
        candidate.tid,
        candidate.outbox_id,
        candidate.next_run_at,
        candidate.lane
    from candidate
    where not exists (
        select from held
        where held.key_hash = candidate.key_hash and held.outbox_id <= candidate.outbox_id
    )
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
        and case
            when o.status = 'PENDING' and o.next_run_at <= now() then hashtext(o.ordering_key) & 63 = due.lane
            else false
        end
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
        due.lane
),

recorded as (
    insert into :"schema".app_outbox_claim (claim_id, relay_id, lanes, outbox_ids)
    select
        :'claim_id'::uuid,
        :'relay_id'::integer,
        array_agg(distinct claimed.lane),
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
    null
where (select count(*) from due) > (select count(*) from claimed)
