-- Claims due rows with ordering key from the lanes this relay owns, of the given destinations, in the
-- order of outbox_id, and parks the followers of held keys that it meets.
-- Locks: the lane rows FOR SHARE (a lane moves only between claims), then the outbox rows with
-- SKIP LOCKED. A row that somebody else has locked keeps its place: later rows of its key are
-- left out, so that they do not overtake it.
-- Index: app_outbox_queue_lane_idx, app_outbox_pkey, app_outbox_hold_boundary_idx (only where any key
-- is held).
-- Destinations and lanes are looked at in the order in which they are given, which the caller changes
-- from claim to claim; it bounds their product, since each pair costs a look into the index.
-- A follower is parked for good by this one meeting: it comes back by return_followers.sql. The hash
-- leads to the holds, the key itself decides.
-- Stale entries are thrown away and told as by claim_rows.sql; parked ones count with them.
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
        entry.destination,
        entry.lane,
        entry.key_hash,
        case
            when (select exists(select from :"schema".app_outbox_hold))
                then exists (
                    select
                    from :"schema".app_outbox_hold as h
                    where
                        h.destination = entry.destination
                        and h.key_hash = entry.key_hash
                        and h.boundary < entry.outbox_id
                        and h.ordering_key = (
                            select o.ordering_key
                            from :"schema".app_outbox as o
                            where o.outbox_id = entry.outbox_id
                        )
                    offset 0 -- a look-up for each row, never a join
                )
            else false
        end as is_held
    from unnest(:'destinations'::text [], :'quotas'::integer []) as target (destination, quota)
    cross join lateral (
        select
            waiting.tid,
            waiting.outbox_id,
            waiting.next_run_at,
            waiting.destination,
            waiting.lane,
            waiting.key_hash
        from owned
        cross join lateral (
            select
                q.ctid as tid,
                q.outbox_id,
                q.next_run_at,
                q.destination,
                q.lane,
                q.key_hash
            from :"schema".app_outbox_queue as q
            where
                q.destination = target.destination
                and q.lane = owned.lane
                and q.parked is null
                and q.next_run_at <= now()
            order by q.outbox_id
            limit :'lane_quota'::integer
        ) as waiting
        limit target.quota
    ) as entry
    limit :'batch_rows'::integer
),

locked as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where o.outbox_id = any(array(select candidate.outbox_id from candidate where not candidate.is_held))
    for update of o skip locked
),

passed_over as materialized (
    select
        candidate.destination,
        candidate.key_hash,
        min(candidate.outbox_id) as outbox_id
    from candidate
    where
        not candidate.is_held
        and candidate.outbox_id not in (select locked.outbox_id from locked)
        and exists (select from :"schema".app_outbox as o where o.outbox_id = candidate.outbox_id)
    group by candidate.destination, candidate.key_hash
),

due as materialized (
    select
        candidate.tid,
        candidate.outbox_id,
        candidate.next_run_at,
        candidate.destination,
        candidate.lane,
        candidate.key_hash
    from candidate
    where
        not candidate.is_held
        and not exists (
            select from passed_over
            where
                passed_over.destination = candidate.destination
                and passed_over.key_hash = candidate.key_hash
                and passed_over.outbox_id <= candidate.outbox_id
        )
),

parked as (
    update :"schema".app_outbox_queue
    set parked = 'k'
    where ctid = any(array(select candidate.tid from candidate where candidate.is_held))
    returning outbox_id
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
            when o.status = 'PENDING' and o.next_run_at <= now()
                then hashtext(o.ordering_key) = due.key_hash and o.destination = due.destination
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
        due.lane,
        o.created_at
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
    ((select count(*) from due) - (select count(*) from claimed) + (select count(*) from parked))::integer,
    null,
    null,
    null
where (select count(*) from due) + (select count(*) from parked) > (select count(*) from claimed)
