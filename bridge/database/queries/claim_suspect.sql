-- Claims one row whose relays keep dying, alone: of all destinations but those that are shut; an ordered row
-- only from a lane that this relay owns, and only when it is its key's turn.
-- Locks: the lane rows FOR SHARE, then queue entry and outbox row with SKIP LOCKED.
-- Index: app_outbox_queue_alone_idx, app_outbox_pkey, app_outbox_hold_boundary_idx,
-- app_outbox_queue_lane_idx.
-- `most_deaths` leaves out rows with which more relays died.
-- A stale entry is thrown away and told as by claim_rows.sql.
-- The linter misreads a limit behind a LATERAL, and does not count the columns of `*`.
-- noqa: disable=layout.indent,ambiguous.set_columns
with owned as materialized (
    select l.lane
    from :"schema".app_outbox_lane as l
    where l.lane = any(:'lanes'::smallint []) and l.relay_id = :'relay_id'::integer
    order by l.lane
    for share of l
),

due as materialized (
    select
        q.ctid as tid,
        q.outbox_id,
        q.next_run_at,
        q.destination,
        q.lane,
        q.key_hash
    from :"schema".app_outbox_queue as q
    inner join :"schema".app_outbox as held on q.outbox_id = held.outbox_id
    where
        q.parked = 'p'
        and q.next_run_at <= now()
        and not exists (
            select
            from :"schema".app_outbox_suspect as s
            where s.outbox_id = q.outbox_id and s.deaths > :'most_deaths'::integer
            offset 0 -- a look-up for each row, never a join
        )
        and (q.lane is null or q.lane in (select owned.lane from owned))
        and q.destination <> all(:'shut'::text [])
        and not exists (
            select
            from :"schema".app_outbox_hold as h
            where
                q.lane is not null
                and h.destination = q.destination
                and h.key_hash = q.key_hash
                and h.boundary < q.outbox_id
                and h.ordering_key = held.ordering_key
            offset 0 -- a look-up for each row, never a join
        )
        and not exists (
            select
            from :"schema".app_outbox_queue as earlier
            where
                q.lane is not null
                and earlier.destination = q.destination
                and earlier.lane = q.lane
                and earlier.parked is null
                and earlier.outbox_id < q.outbox_id
                and earlier.key_hash = q.key_hash
                and earlier.next_run_at <= now()
            offset 0
        )
    order by q.outbox_id
    limit 1
    for update of q, held skip locked
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
                then hashtext(o.ordering_key) is not distinct from due.key_hash and o.destination = due.destination
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
        array_agg(claimed.lane) filter (where claimed.lane is not null),
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
