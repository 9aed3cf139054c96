-- Monitoring views: what is unsent, failed, sent, held, and who is sending.
--
-- One more variable:
--   :'relay_lock_class'   the advisory locks (class, relay_id) that living relays hold
--
-- They read the narrow side tables as a whole and look rows of app_outbox up by primary key, one by one
-- (`offset 0` keeps the planner from making a join of it, and so from scanning app_outbox): their cost
-- grows with what is unsent, not with what was sent. They run with the owner's rights; who may read
-- them is said in roles.sql.

alter table :"schema".app_outbox_relay add column failing jsonb not null default '{}';

create view :"schema".outbox_unsent as
select
    candidate.outbox_id,
    o.destination,
    o.event_type,
    o.message_key,
    o.ordering_key,
    o.status,
    o.created_at,
    o.next_run_at,
    o.waiting_since,
    case
        when isfinite(o.waiting_since)
            then greatest(0, extract(epoch from statement_timestamp() - o.waiting_since))::float8
    end as waiting_seconds,
    candidate.held,
    o.retry_count,
    o.max_retry_count,
    o.claim_count,
    o.locked_by,
    o.locked_at,
    o.last_error_code,
    o.last_error_msg
from (
    select
        entry.outbox_id,
        bool_or(entry.held) as held
    from (
        select
            q.outbox_id,
            coalesce(q.parked = 'k', false) as held
        from :"schema".app_outbox_queue as q
        union all
        select
            unnest(c.outbox_ids),
            false
        from :"schema".app_outbox_claim as c
    ) as entry
    group by entry.outbox_id
) as candidate
cross join
    lateral (
        select
            -- As in the side tables, so that they can be put together.
            r.destination collate "C" as destination, -- noqa: RF03
            r.event_type,
            r.message_key,
            r.ordering_key,
            r.status,
            r.created_at,
            r.next_run_at,
            case
                when r.status = 'PROCESSING' or r.claim_count > 0 or r.next_run_at <= statement_timestamp()
                    then case when r.claim_count = 0 then greatest(r.created_at, r.next_run_at) else r.created_at end
            end as waiting_since,
            r.retry_count,
            r.max_retry_count,
            r.claim_count,
            r.locked_by,
            r.locked_at,
            r.last_error_code,
            r.last_error_msg
        from :"schema".app_outbox as r
        where r.outbox_id = candidate.outbox_id and r.status in ('PENDING', 'PROCESSING')
        offset 0
    ) as o;

create view :"schema".outbox_by_destination as
select
    part.destination,
    sum(part.pending)::bigint as pending,
    sum(part.processing)::bigint as processing,
    sum(part.due)::bigint as due,
    sum(part.pending - part.due)::bigint as later,
    sum(part.failed)::bigint as failed,
    sum(part.sent)::bigint as sent,
    sum(part.cancelled)::bigint as cancelled,
    max(part.oldest_unsent_seconds) as oldest_unsent_seconds
from (
    select
        u.destination,
        count(*) filter (where u.status = 'PENDING') as pending,
        count(*) filter (where u.status = 'PROCESSING') as processing,
        count(*) filter (where u.status = 'PENDING' and u.next_run_at <= statement_timestamp()) as due,
        0::bigint as failed,
        0::numeric as sent,
        0::numeric as cancelled,
        max(u.waiting_seconds) as oldest_unsent_seconds
    from :"schema".outbox_unsent as u
    group by u.destination
    union all
    select
        f.destination,
        0,
        0,
        0,
        count(*),
        0,
        0,
        null
    from :"schema".app_outbox_failed as f
    group by f.destination
    union all
    select
        c.destination,
        0,
        0,
        0,
        0,
        coalesce(sum(c.delta) filter (where c.status = 'SENT'), 0),
        coalesce(sum(c.delta) filter (where c.status = 'CANCELLED'), 0),
        null
    from :"schema".app_outbox_counter as c
    group by c.destination
) as part
group by part.destination
having
    sum(part.pending) <> 0
    or sum(part.processing) <> 0
    or sum(part.failed) <> 0
    or sum(part.sent) <> 0
    or sum(part.cancelled) <> 0;

create view :"schema".outbox_by_status as
with total as (
    select
        sum(d.pending) as pending,
        sum(d.processing) as processing,
        sum(d.sent) as sent,
        sum(d.failed) as failed,
        sum(d.cancelled) as cancelled
    from :"schema".outbox_by_destination as d
)

select
    s.status,
    coalesce(s.messages, 0)::bigint as messages
from total as t
cross join
    lateral (
        values
        ('PENDING', t.pending),
        ('PROCESSING', t.processing),
        ('SENT', t.sent),
        ('FAILED', t.failed),
        ('CANCELLED', t.cancelled)
    ) as s (status, messages);

create view :"schema".outbox_oldest_unsent as
select
    u.outbox_id,
    u.destination,
    u.event_type,
    u.message_key,
    u.ordering_key,
    u.status,
    u.waiting_since,
    u.waiting_seconds,
    u.held,
    u.next_run_at,
    u.retry_count,
    u.claim_count,
    u.locked_by,
    u.last_error_code
from :"schema".outbox_unsent as u
where u.waiting_since is not null
order by u.waiting_since, u.outbox_id
limit 100;

create view :"schema".outbox_near_retry_limit as
select
    u.outbox_id,
    u.destination,
    u.event_type,
    u.message_key,
    u.status,
    u.retry_count,
    u.max_retry_count,
    u.max_retry_count - u.retry_count as attempts_left,
    u.next_run_at,
    u.waiting_seconds,
    u.last_error_code,
    u.last_error_msg
from :"schema".outbox_unsent as u
where u.retry_count > 0 and u.retry_count >= u.max_retry_count - 1;

create view :"schema".outbox_by_error as
select
    f.destination,
    f.error_code,
    count(*) as messages,
    min(f.failed_at) as first_at,
    max(f.failed_at) as latest_at
from :"schema".app_outbox_failed as f
group by f.destination, f.error_code;

create view :"schema".outbox_relays as
select
    known.relay_id,
    known.relay_name,
    known.host,
    known.pid,
    known.version,
    case
        when not known.has_session then 'dead'
        when known.silent_seconds > known.lease_seconds
            then case when known.has_session then 'frozen' else 'dead' end
        when known.stopping then 'stopping'
        else 'living'
    end as state,
    known.started_at,
    known.heartbeat_at,
    known.silent_seconds,
    known.lease_seconds,
    known.has_session,
    (select count(*) from :"schema".app_outbox_claim as c where c.relay_id = known.relay_id) as claims,
    known.failing
from (
    select
        r.relay_id,
        r.relay_name,
        r.host,
        r.pid,
        r.version,
        r.stopping,
        r.started_at,
        r.heartbeat_at,
        greatest(0, extract(epoch from statement_timestamp() - r.heartbeat_at))::float8 as silent_seconds,
        r.lease_seconds,
        case when r.has_lock and not pg_catalog.pg_is_in_recovery() then exists (
            select
            from pg_catalog.pg_locks as l
            where
                l.locktype = 'advisory'
                and l.database = (
                    select d.oid from pg_catalog.pg_database as d where d.datname = current_database()
                )
                and l.classid = (:'relay_lock_class')::integer::oid
                and l.objid = r.relay_id::oid
                and l.objsubid = 2
                and l.granted
        ) end as has_session,
        r.failing
    from :"schema".app_outbox_relay as r
) as known;

create view :"schema".outbox_breakers as
select
    b.destination,
    r.relay_id,
    r.relay_name,
    b.reason,
    r.heartbeat_at as seen_at
from :"schema".outbox_relays as r
cross join lateral jsonb_each_text(r.failing) as b (destination, reason)
where r.state in ('living', 'stopping');

create view :"schema".outbox_stuck as
select
    claimed.outbox_id,
    o.destination,
    o.event_type,
    o.message_key,
    c.claim_id,
    c.claimed_at,
    greatest(0, extract(epoch from statement_timestamp() - c.claimed_at))::float8 as claimed_seconds,
    c.relay_id,
    r.relay_name,
    coalesce(r.state, 'gone') as relay_state,
    o.claim_count
from :"schema".app_outbox_claim as c
left join :"schema".outbox_relays as r on c.relay_id = r.relay_id
cross join lateral unnest(c.outbox_ids) as claimed (outbox_id)
cross join
    lateral (
        select
            held.destination,
            held.event_type,
            held.message_key,
            held.claim_count
        from :"schema".app_outbox as held
        where
            held.outbox_id = claimed.outbox_id
            and held.claim_id = c.claim_id
            and held.status = 'PROCESSING'
        offset 0
    ) as o
where
    c.claimed_at < statement_timestamp() - interval '5 minutes'
    or r.relay_id is null
    or r.state in ('frozen', 'dead');

create view :"schema".outbox_held_keys as
select
    h.destination,
    h.ordering_key,
    h.outbox_id,
    o.message_key,
    o.status,
    coalesce(o.last_error_code, h.error_code) as error_code,
    o.last_error_msg as error_message,
    h.held_at,
    h.released_at,
    o.next_run_at,
    exists(
        select from :"schema".app_outbox_suspect as s where s.outbox_id = h.outbox_id and s.deaths >= 2
    ) as is_alone,
    (
        select count(*)
        from :"schema".app_outbox_queue as q
        where
            q.destination = h.destination
            and q.key_hash = h.key_hash
            and q.parked is not null
            and q.outbox_id > h.boundary
    ) as waiting
from :"schema".app_outbox_hold as h
left join
    lateral (
        select
            r.message_key,
            r.status,
            r.last_error_code,
            r.last_error_msg,
            r.next_run_at
        from :"schema".app_outbox as r
        where r.outbox_id = h.outbox_id
        offset 0
    ) as o
    on true;

create view :"schema".outbox_throughput_by_destination as
select
    date_trunc('minute', c.counted_at) as minute,
    c.destination,
    coalesce(sum(c.delta) filter (where c.status = 'SENT'), 0)::bigint as sent,
    coalesce(sum(c.delta) filter (where c.status = 'CANCELLED'), 0)::bigint as cancelled
from :"schema".app_outbox_counter as c
where c.delta > 0 and c.counted_at >= date_trunc('minute', statement_timestamp()) - interval '59 minutes'
group by date_trunc('minute', c.counted_at), c.destination;

create view :"schema".outbox_throughput as
select
    m.minute,
    coalesce(done.sent, 0)::bigint as sent,
    coalesce(failed.messages, 0)::bigint as failed,
    coalesce(done.cancelled, 0)::bigint as cancelled
from
    generate_series(
        date_trunc('minute', statement_timestamp()) - interval '59 minutes',
        date_trunc('minute', statement_timestamp()),
        interval '1 minute'
    ) as m (minute)
left join (
    select
        t.minute,
        sum(t.sent) as sent,
        sum(t.cancelled) as cancelled
    from :"schema".outbox_throughput_by_destination as t
    group by t.minute
) as done on m.minute = done.minute
left join (
    select
        date_trunc('minute', f.failed_at) as minute,
        count(*) as messages
    from :"schema".app_outbox_failed as f
    where f.failed_at >= date_trunc('minute', statement_timestamp()) - interval '59 minutes'
    group by date_trunc('minute', f.failed_at)
) as failed on m.minute = failed.minute;

comment on column :"schema".app_outbox_relay.failing is
'Destinations whose circuit breaker the relay has open, with the reason of each; as of heartbeat_at, 100 at most.';

comment on view :"schema".outbox_unsent is
'Every row that is PENDING or PROCESSING, and since when it waits. Filter it by what you look for.';
comment on column :"schema".outbox_unsent.outbox_id is 'Row of app_outbox.';
comment on column :"schema".outbox_unsent.destination is 'Its destination.';
comment on column :"schema".outbox_unsent.event_type is 'Its event type.';
comment on column :"schema".outbox_unsent.message_key is 'Its message key.';
comment on column :"schema".outbox_unsent.ordering_key is 'Its ordering key.';
comment on column :"schema".outbox_unsent.status is 'PENDING or PROCESSING.';
comment on column :"schema".outbox_unsent.created_at is 'When it was enqueued.';
comment on column :"schema".outbox_unsent.next_run_at is 'Not sent before this time.';
comment on column :"schema".outbox_unsent.waiting_since is
'Since when it could have gone out: when it became due, or for one that was tried before, its enqueueing; null: not due yet.';
comment on column :"schema".outbox_unsent.waiting_seconds is 'The same as an age; null also for an infinite time.';
comment on column :"schema".outbox_unsent.held is 'Whether it waits because an earlier row of its ordering key failed.';
comment on column :"schema".outbox_unsent.retry_count is 'Attempts that failed and were charged.';
comment on column :"schema".outbox_unsent.max_retry_count is 'FAILED when retry_count reaches it.';
comment on column :"schema".outbox_unsent.claim_count is 'How often it was handed to Kafka; 0: certainly never sent.';
comment on column :"schema".outbox_unsent.locked_by is 'Relay that claimed it.';
comment on column :"schema".outbox_unsent.locked_at is 'When it was claimed.';
comment on column :"schema".outbox_unsent.last_error_code is 'Code of its latest failure.';
comment on column :"schema".outbox_unsent.last_error_msg is 'Text of its latest failure.';

comment on view :"schema".outbox_by_destination is 'Exact counts of one moment for each destination that has any row.';
comment on column :"schema".outbox_by_destination.destination is 'The destination.';
comment on column :"schema".outbox_by_destination.pending is 'Rows that are PENDING.';
comment on column :"schema".outbox_by_destination.processing is 'Rows that are PROCESSING.';
comment on column :"schema".outbox_by_destination.due is 'PENDING rows that may go out now.';
comment on column :"schema".outbox_by_destination.later is 'PENDING rows whose next_run_at is still to come.';
comment on column :"schema".outbox_by_destination.failed is 'Rows that are FAILED.';
comment on column :"schema".outbox_by_destination.sent is 'Rows that are SENT and still in the table.';
comment on column :"schema".outbox_by_destination.cancelled is 'Rows that are CANCELLED and still in the table.';
comment on column :"schema".outbox_by_destination.oldest_unsent_seconds is
'Since when the longest waiting row could have gone out; null: nothing waits.';

comment on view :"schema".outbox_by_status is 'Exact counts of one moment by status; always five rows.';
comment on column :"schema".outbox_by_status.status is 'The status.';
comment on column :"schema".outbox_by_status.messages is 'How many rows have it.';

comment on view :"schema".outbox_oldest_unsent is 'The 100 rows that have been waiting for the longest, longest first.';
comment on column :"schema".outbox_oldest_unsent.outbox_id is 'Row of app_outbox.';
comment on column :"schema".outbox_oldest_unsent.destination is 'Its destination.';
comment on column :"schema".outbox_oldest_unsent.event_type is 'Its event type.';
comment on column :"schema".outbox_oldest_unsent.message_key is 'Its message key.';
comment on column :"schema".outbox_oldest_unsent.ordering_key is 'Its ordering key.';
comment on column :"schema".outbox_oldest_unsent.status is 'PENDING or PROCESSING.';
comment on column :"schema".outbox_oldest_unsent.waiting_since is 'Since when it could have gone out.';
comment on column :"schema".outbox_oldest_unsent.waiting_seconds is 'The same as an age.';
comment on column :"schema".outbox_oldest_unsent.held is 'Whether it waits because an earlier row of its ordering key failed.';
comment on column :"schema".outbox_oldest_unsent.next_run_at is 'When it is tried next.';
comment on column :"schema".outbox_oldest_unsent.retry_count is 'Attempts that failed and were charged.';
comment on column :"schema".outbox_oldest_unsent.claim_count is 'How often it was handed to Kafka; 0: certainly never sent.';
comment on column :"schema".outbox_oldest_unsent.locked_by is 'Relay that has it.';
comment on column :"schema".outbox_oldest_unsent.last_error_code is 'Code of its latest failure.';

comment on view :"schema".outbox_near_retry_limit is 'Unsent rows that failed and have one attempt left: the next failure makes them FAILED.';
comment on column :"schema".outbox_near_retry_limit.outbox_id is 'Row of app_outbox.';
comment on column :"schema".outbox_near_retry_limit.destination is 'Its destination.';
comment on column :"schema".outbox_near_retry_limit.event_type is 'Its event type.';
comment on column :"schema".outbox_near_retry_limit.message_key is 'Its message key.';
comment on column :"schema".outbox_near_retry_limit.status is 'PENDING or PROCESSING.';
comment on column :"schema".outbox_near_retry_limit.retry_count is 'Attempts that failed and were charged.';
comment on column :"schema".outbox_near_retry_limit.max_retry_count is 'FAILED when retry_count reaches it.';
comment on column :"schema".outbox_near_retry_limit.attempts_left is 'How many attempts are left.';
comment on column :"schema".outbox_near_retry_limit.next_run_at is 'When the next attempt is due.';
comment on column :"schema".outbox_near_retry_limit.waiting_seconds is 'Since when it could have gone out.';
comment on column :"schema".outbox_near_retry_limit.last_error_code is 'Code of its latest failure.';
comment on column :"schema".outbox_near_retry_limit.last_error_msg is 'Text of its latest failure.';

comment on view :"schema".outbox_by_error is 'FAILED rows by destination and error code.';
comment on column :"schema".outbox_by_error.destination is 'Their destination.';
comment on column :"schema".outbox_by_error.error_code is 'Their error code.';
comment on column :"schema".outbox_by_error.messages is 'How many.';
comment on column :"schema".outbox_by_error.first_at is 'When the first of them failed.';
comment on column :"schema".outbox_by_error.latest_at is 'When the latest of them failed.';

comment on view :"schema".outbox_relays is 'Registered relays, and whether they live.';
comment on column :"schema".outbox_relays.relay_id is 'The relay.';
comment on column :"schema".outbox_relays.relay_name is 'Its name, as locked_by shows it.';
comment on column :"schema".outbox_relays.host is 'Host name.';
comment on column :"schema".outbox_relays.pid is 'Process id on that host.';
comment on column :"schema".outbox_relays.version is 'Version of the relay.';
comment on column :"schema".outbox_relays.state is
'living; stopping: alive, claims no more; frozen: its session stands, its heartbeat is older than its lease; dead.';
comment on column :"schema".outbox_relays.started_at is 'When it registered.';
comment on column :"schema".outbox_relays.heartbeat_at is 'Latest heartbeat.';
comment on column :"schema".outbox_relays.silent_seconds is 'Time since then.';
comment on column :"schema".outbox_relays.lease_seconds is 'Silent for longer than this, its claims are taken back.';
comment on column :"schema".outbox_relays.has_session is
'Whether its session holds the lock that says it lives; null behind a transaction pooler and on a standby, where nobody can tell.';
comment on column :"schema".outbox_relays.claims is 'Batches that it has claimed.';
comment on column :"schema".outbox_relays.failing is 'Destinations whose circuit breaker it has open, with the reason of each.';

comment on view :"schema".outbox_breakers is 'Destinations to which a living relay does not send because they fail.';
comment on column :"schema".outbox_breakers.destination is 'The destination.';
comment on column :"schema".outbox_breakers.relay_id is 'The relay whose circuit breaker is open.';
comment on column :"schema".outbox_breakers.relay_name is 'Its name.';
comment on column :"schema".outbox_breakers.reason is 'Why, in the words of Kafka''s client or ours.';
comment on column :"schema".outbox_breakers.seen_at is 'As of when: the relay''s latest heartbeat.';

comment on view :"schema".outbox_stuck is
'Claimed rows that are not settled although they were claimed more than five minutes ago, or their relay is frozen, dead or gone.';
comment on column :"schema".outbox_stuck.outbox_id is 'Row of app_outbox; it is PROCESSING.';
comment on column :"schema".outbox_stuck.destination is 'Its destination.';
comment on column :"schema".outbox_stuck.event_type is 'Its event type.';
comment on column :"schema".outbox_stuck.message_key is 'Its message key.';
comment on column :"schema".outbox_stuck.claim_id is 'The claim that has it.';
comment on column :"schema".outbox_stuck.claimed_at is 'When it was claimed.';
comment on column :"schema".outbox_stuck.claimed_seconds is 'Time since then.';
comment on column :"schema".outbox_stuck.relay_id is 'The relay that claimed it.';
comment on column :"schema".outbox_stuck.relay_name is 'Its name; null where it is not registered any more.';
comment on column :"schema".outbox_stuck.relay_state is 'Its state; gone: not registered any more.';
comment on column :"schema".outbox_stuck.claim_count is 'How often the row was handed to Kafka, this time included.';

comment on view :"schema".outbox_held_keys is
'One row for each row that holds up its ordering key; a key may be held by several, the lowest id goes first.';
comment on column :"schema".outbox_held_keys.destination is 'Destination of the key.';
comment on column :"schema".outbox_held_keys.ordering_key is 'The key.';
comment on column :"schema".outbox_held_keys.outbox_id is 'The row that holds it.';
comment on column :"schema".outbox_held_keys.message_key is 'That row''s message key; null where it was deleted a moment ago, like its other columns.';
comment on column :"schema".outbox_held_keys.status is 'Its status.';
comment on column :"schema".outbox_held_keys.error_code is 'Why it holds the key.';
comment on column :"schema".outbox_held_keys.error_message is 'The same in words.';
comment on column :"schema".outbox_held_keys.held_at is 'Since when.';
comment on column :"schema".outbox_held_keys.released_at is 'Set where its followers are coming back.';
comment on column :"schema".outbox_held_keys.next_run_at is 'When it is tried next, while it is PENDING.';
comment on column :"schema".outbox_held_keys.is_alone is 'Whether it is to be claimed alone: relays died while they had it.';
comment on column :"schema".outbox_held_keys.waiting is 'Parked rows behind it; rows that no claim has met yet come on top.';

comment on view :"schema".outbox_throughput_by_destination is
'Rows that became SENT or CANCELLED in each of the last 60 minutes, by destination; minutes without any are left out.';
comment on column :"schema".outbox_throughput_by_destination.minute is 'Begin of the minute; the latest is not over yet.';
comment on column :"schema".outbox_throughput_by_destination.destination is 'The destination.';
comment on column :"schema".outbox_throughput_by_destination.sent is 'Rows that became SENT.';
comment on column :"schema".outbox_throughput_by_destination.cancelled is 'Rows that became CANCELLED.';

comment on view :"schema".outbox_throughput is 'What was done in each of the last 60 minutes; always 60 rows.';
comment on column :"schema".outbox_throughput.minute is 'Begin of the minute; the latest is not over yet.';
comment on column :"schema".outbox_throughput.sent is 'Rows that became SENT.';
comment on column :"schema".outbox_throughput.failed is 'Rows that became FAILED and still are.';
comment on column :"schema".outbox_throughput.cancelled is 'Rows that became CANCELLED.';
