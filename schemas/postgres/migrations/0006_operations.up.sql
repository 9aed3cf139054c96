-- Operator actions, and an audit that shows when somebody has changed it.
--
-- Every action on rows goes through app_outbox_act, whoever asks for it: the command line, the console and
-- the functions outbox_* below. It locks a row, checks its state, changes it and writes one audit entry, all
-- or nothing. Operators have no other way to change a row: they may call it, and may not update the table.
--
-- The functions that operators call run with the owner's rights and a search_path of their own. The
-- trigger functions among them are not on the way of a message.
--
-- Variables beyond those of 0001_outbox:
--   :'relay_lock_class'  class of the advisory lock that a living relay holds on its relay_id

alter table :"schema".app_outbox_audit add column request_id varchar(128);
alter table :"schema".app_outbox_audit add column database_user varchar(128);
alter table :"schema".app_outbox_audit add column transaction_id xid8;

-- Only new entries: of the older ones user and transaction are not known.
alter table :"schema".app_outbox_audit
alter column request_id set default pg_catalog.left(
    nullif(pg_catalog.current_setting('outbox_bridge.request_id', true), ''), 128
),
alter column database_user set default session_user,
alter column transaction_id set default pg_catalog.pg_current_xact_id();

create index app_outbox_audit_request_id_idx
on :"schema".app_outbox_audit (request_id, audit_id)
where request_id is not null;

-- The chain: one link for each entry, in the order of commits and without a gap. The hash of a link covers
-- its entry and the hash before it. A table beside the audit, because a link is written when its
-- transaction commits, and the audit refuses every update.
create table :"schema".app_outbox_audit_link (
    position bigint primary key,
    audit_id bigint not null,
    linked_at timestamptz not null,
    prev_hash bytea not null,
    hash bytea not null,
    constraint app_outbox_audit_link_audit_id_key unique (audit_id)
);

create table :"schema".app_outbox_audit_head (
    is_only boolean primary key default true,
    position bigint not null,
    hash bytea not null,
    constraint app_outbox_audit_head_check check (is_only)
) with (
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);

insert into :"schema".app_outbox_audit_head (position, hash)
values (0, pg_catalog.decode(pg_catalog.repeat('00', 32), 'hex'));

-- Appends the entries of one transaction, from first_id on (of all, where it is null), that have no link.
-- `bridge/database/queries/read_audit_chain.sql` repeats the text that is hashed: it must not ask a
-- function that whoever changed the audit may have changed as well.
create function :"schema".app_outbox_audit_append(first_id bigint, own_transaction xid8) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    last record;
    entry record;
    moment timestamptz := clock_timestamp();
    digest bytea;
begin
    -- Waits for a transaction that is committing, and then sees what it left: no two links follow the
    -- same one. In a snapshot that is older than the head this fails instead.
    select h.position, h.hash
    into strict last
    from :"schema".app_outbox_audit_head as h
    for update;
    for entry in
        select a.*
        from :"schema".app_outbox_audit as a
        where
            a.audit_id >= first_id
            and (own_transaction is null or a.transaction_id = own_transaction)
            and not exists (select from :"schema".app_outbox_audit_link as l where l.audit_id = a.audit_id)
        order by a.audit_id
    loop
        digest := sha256(last.hash || convert_to(
            jsonb_build_array(
                last.position + 1,
                timezone('UTC', moment),
                entry.audit_id,
                entry.outbox_id,
                entry.action_name,
                entry.reason,
                entry.changed_by,
                timezone('UTC', entry.changed_at),
                entry.before_state,
                entry.after_state,
                entry.source,
                entry.request_id,
                entry.database_user
            )::text,
            'UTF8'
        ));
        insert into :"schema".app_outbox_audit_link (position, audit_id, linked_at, prev_hash, hash)
        values (last.position + 1, entry.audit_id, moment, last.hash, digest);
        last.position := last.position + 1;
        last.hash := digest;
    end loop;
    update :"schema".app_outbox_audit_head
    set position = last.position, hash = last.hash;
end
$$;

-- The first entry of a transaction brings all of them: the head moves once, however many rows an action
-- has changed.
create function :"schema".app_outbox_audit_link() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (select from :"schema".app_outbox_audit_link as l where l.audit_id = new.audit_id) then
        perform :"schema".app_outbox_audit_append(
            new.audit_id, coalesce(new.transaction_id, pg_current_xact_id())
        );
    end if;
    return null;
end
$$;

-- What stands in the audit already comes first.
select :"schema".app_outbox_audit_append(0, null);

-- Deferred: the head is locked while a transaction commits, not while it is open. Somebody who leaves one
-- open holds up nobody's action.
create constraint trigger app_outbox_audit_chain
after insert on :"schema".app_outbox_audit
deferrable initially deferred
for each row execute function :"schema".app_outbox_audit_link();

create or replace function :"schema".app_outbox_audit_refuse() returns trigger
language plpgsql as $$
begin
    if tg_op operator(pg_catalog.=) 'DELETE'
        and coalesce(pg_catalog.current_setting('outbox_bridge.prunes_audit', true), '')
            operator(pg_catalog.=) 'on'
    then
        return null;
    end if;
    raise exception '% is append-only: % is refused', tg_table_name, tg_op
        using errcode = 'insufficient_privilege';
end
$$;

create trigger app_outbox_audit_link_append_only
before update or delete or truncate on :"schema".app_outbox_audit_link
for each statement execute function :"schema".app_outbox_audit_refuse();

create trigger app_outbox_audit_head_stays
before insert or delete or truncate on :"schema".app_outbox_audit_head
for each statement execute function :"schema".app_outbox_audit_refuse();

-- Deletes the oldest entries by the order of the chain, up to the first that is younger, with their links.
-- The entry that says so carries position and hash of the last link that went: what stays begins there.
create or replace function :"schema".app_outbox_prune_audit(older_than_days integer) returns bigint
language plpgsql security definer as $$
#variable_conflict use_variable
declare
    first_kept pg_catalog.int8;
    anchor pg_catalog.record;
    first_id pg_catalog.int8;
    last_id pg_catalog.int8;
    pruned pg_catalog.int8;
begin
    if older_than_days is null or older_than_days operator(pg_catalog.<) 30 then
        raise exception 'audit entries are kept for at least 30 days'
            using errcode := 'invalid_parameter_value';
    end if;
    -- One at a time, or two would report the same rows.
    perform pg_catalog.pg_advisory_xact_lock(:'wake_class', 1);
    select l.position
    into first_kept
    from :"schema".app_outbox_audit_link as l
    inner join :"schema".app_outbox_audit as a on l.audit_id operator(pg_catalog.=) a.audit_id
    where a.changed_at operator(pg_catalog.>=)
        (pg_catalog.now() operator(pg_catalog.-) pg_catalog.make_interval(days => older_than_days))
    order by l.position
    limit 1;
    select l.position, l.hash
    into anchor
    from :"schema".app_outbox_audit_link as l
    where first_kept is null or l.position operator(pg_catalog.<) first_kept
    order by l.position desc
    limit 1;
    if not found then
        return 0;
    end if;
    select pg_catalog.min(a.audit_id), pg_catalog.max(a.audit_id), pg_catalog.count(*)
    into first_id, last_id, pruned
    from :"schema".app_outbox_audit as a
    inner join :"schema".app_outbox_audit_link as l on a.audit_id operator(pg_catalog.=) l.audit_id
    where l.position operator(pg_catalog.<=) anchor.position;
    perform pg_catalog.set_config('outbox_bridge.prunes_audit', 'on', true);
    delete from :"schema".app_outbox_audit as a
    using :"schema".app_outbox_audit_link as l
    where
        a.audit_id operator(pg_catalog.=) l.audit_id
        and l.position operator(pg_catalog.<=) anchor.position;
    delete from :"schema".app_outbox_audit_link as l
    where l.position operator(pg_catalog.<=) anchor.position;
    perform pg_catalog.set_config('outbox_bridge.prunes_audit', '', true);
    insert into :"schema".app_outbox_audit
    (action_name, reason, changed_by, before_state, after_state, source)
    values (
        'prune audit',
        pg_catalog.format('audit entries older than %s days are not kept', older_than_days),
        session_user,
        pg_catalog.jsonb_build_object('first_audit_id', first_id, 'last_audit_id', last_id, 'entries', pruned),
        pg_catalog.jsonb_build_object(
            'last_position', anchor.position, 'last_hash', pg_catalog.encode(anchor.hash, 'hex')
        ),
        'relay'
    );
    return pruned;
end
$$;

-- Nobody but the owner writes to the audit by hand any more: a switch's entry is written with the owner's
-- rights. The function names everything in full.
alter function :"schema".app_outbox_control_audit() security definer;

-- What the audit keeps of a row: the columns that actions change; of a payload that is changed its hash, and
-- where keep_payload says so the text (bytes in base64).
create function :"schema".app_outbox_audit_state(
    row_id bigint, wanted_action text, has_new_payload boolean, keep_payload boolean
) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    select
        jsonb_build_object(
            'status', o.status,
            'claim_count', o.claim_count,
            'destination', o.destination,
            'headers', o.headers,
            'retry_count', o.retry_count,
            'next_run_at', o.next_run_at,
            'claim_id', o.claim_id,
            'locked_by', o.locked_by,
            'locked_at', o.locked_at,
            'last_error_code', o.last_error_code,
            'last_error_msg', o.last_error_msg,
            'sent_at', o.sent_at,
            'sent_topic', o.sent_topic,
            'sent_partition', o.sent_partition,
            'sent_offset', o.sent_offset
        )
        || case when wanted_action = 'skip' then jsonb_build_object(
            'holds_key', exists(
                select from :"schema".app_outbox_hold as h
                where h.outbox_id = o.outbox_id and h.released_at is null
            )
        ) else '{}' end
        || case when has_new_payload then jsonb_build_object(
            'content_type', o.content_type,
            'payload_size', coalesce(octet_length(o.payload_json::text), octet_length(o.payload_bytes)),
            'payload_sha256', encode(
                sha256(coalesce(convert_to(o.payload_json::text, 'UTF8'), o.payload_bytes)), 'hex'
            )
        ) else '{}' end
        || case when has_new_payload and keep_payload then jsonb_strip_nulls(jsonb_build_object(
            'payload', o.payload_json::text,
            'payload_base64', encode(o.payload_bytes, 'base64')
        )) else '{}' end
    from :"schema".app_outbox as o
    where o.outbox_id = row_id
$$;

-- Says why an action would leave a row as it is; null where it would change it. Reads only.
create function :"schema".app_outbox_obstacle(
    wanted_action text, row_id bigint, options jsonb default '{}'
) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    target record;
    claim record;
    starts text[];
    since text;
    stuck_seconds double precision := 60 * (options ->> 'stuck_minutes')::double precision;
    headers_after jsonb;
begin
    starts := case wanted_action
        when 'retry' then array['FAILED']
        when 'cancel' then array['PENDING', 'FAILED']
        when 'send now' then array['PENDING']
        when 'release' then array['PROCESSING']
        when 'replay' then array['SENT']
        when 'skip' then array['PENDING', 'FAILED']
        when 'edit' then array['PENDING', 'FAILED']
    end;
    if starts is null then
        raise exception 'there is no action %', quote_nullable(wanted_action)
            using errcode = 'invalid_parameter_value';
    end if;
    select
        o.status,
        o.destination,
        o.headers,
        o.next_run_at,
        o.claim_id,
        o.locked_by,
        o.locked_at,
        o.sent_at,
        o.updated_at
    into target
    from :"schema".app_outbox as o
    where o.outbox_id = row_id;
    if not found then
        return 'there is no such row; it was pruned, or it never was';
    end if;
    since := to_char(
        timezone('UTC', coalesce(
            case target.status when 'SENT' then target.sent_at when 'PROCESSING' then target.locked_at end,
            target.updated_at
        )),
        'YYYY-MM-DD HH24:MI:SS"Z"'
    );
    if target.status <> all (starts) then
        return concat(
            wanted_action, ' target is not ', array_to_string(starts, ' or '), ': it is ', target.status,
            ' since ', since, case when target.status = 'PROCESSING' then concat(', claimed by ', target.locked_by) end
        );
    end if;

    if wanted_action = 'send now' and target.next_run_at <= now() then
        return 'send now target is due already; it waits for a relay, a paused or limited destination, or a held key';
    elsif wanted_action = 'skip' and not exists (
        select from :"schema".app_outbox_hold as h where h.outbox_id = row_id and h.released_at is null
    ) then
        return case when exists (select from :"schema".app_outbox_hold as h where h.outbox_id = row_id)
            then 'skip target was skipped already: its followers are coming back'
            else 'skip target holds no ordering key'
        end;
    elsif wanted_action = 'replay' and target.headers ->> 'outbox-replay-id' = options ->> 'replay_id' then
        return 'replay target was replayed under this id already';
    elsif wanted_action = 'edit' and exists (
        select
        from jsonb_each(options -> 'headers') as h (name, value)
        where
            h.name = ''
            or jsonb_typeof(h.value) <> 'string'
            or lower(h.name collate "C") = any (
                array['outbox-id', 'event-type', 'idempotency-key', 'content-type', 'outbox-attempt']
            )
    ) then
        return 'edit sets a header that is written by the relay, has no name or is no string';
    elsif wanted_action = 'edit' and not coalesce((options ->> 'new_payload')::boolean, false) then
        headers_after := (target.headers || coalesce(options -> 'headers', '{}'))
            - coalesce((select array_agg(d.name) from jsonb_array_elements_text(options -> 'drop_headers') as d (name)), '{}');
        if coalesce(options ->> 'destination', target.destination) = target.destination
            and headers_after = target.headers
        then
            return 'edit target has this destination and these headers already';
        end if;
    elsif wanted_action = 'release' then
        select
            r.relay_name,
            r.has_lock,
            r.lease_seconds,
            extract(epoch from clock_timestamp() - r.heartbeat_at) as silent,
            exists (
                select
                from pg_locks as l
                where
                    l.locktype = 'advisory'
                    and l.database = (select d.oid from pg_database as d where d.datname = current_database())
                    and l.classid = (:'relay_lock_class')::integer::oid
                    and l.objid = c.relay_id::oid
                    and l.objsubid = 2
                    and l.granted
            ) as has_session
        into claim
        from :"schema".app_outbox_claim as c
        inner join :"schema".app_outbox_relay as r on c.relay_id = r.relay_id
        where c.claim_id = target.claim_id;
        if stuck_seconds is not null then
            if extract(epoch from clock_timestamp() - coalesce(target.locked_at, target.updated_at))
                < greatest(stuck_seconds, coalesce(claim.lease_seconds, 0))
            then
                return concat(
                    'release target was claimed at ', since, ' by ', target.locked_by,
                    ': that is within ', greatest(stuck_seconds, coalesce(claim.lease_seconds, 0)),
                    ' s, the time asked for or the relay''s lease'
                );
            end if;
        elsif claim.relay_name is null or claim.silent >= claim.lease_seconds then
            null; -- not registered, or without a sign of life for its lease
        elsif claim.has_session or not claim.has_lock then
            return concat(
                'release target belongs to relay ', claim.relay_name, ', which lives (heartbeat ',
                round(claim.silent::numeric, 1), ' s ago); stop that relay, or name a time for stuck rows'
            );
        elsif claim.silent < 10 then
            return concat(
                'release target belongs to relay ', claim.relay_name, ', whose session ended ',
                round(claim.silent::numeric, 1), ' s ago or less; it may come back, and living relays take its '
                'rows over within seconds'
            );
        end if;
    end if;
    return null;
end
$$;

-- Does one action to the given rows, by ascending id, and leaves one audit entry for each row that it
-- changes. Rows in the wrong state are left and said why (refused). With skip_locked rows that somebody
-- else has locked are left as well; else it waits for them, as long as lock_timeout allows.
-- Who acts and by what means: the settings outbox_bridge.actor, outbox_bridge.source and
-- outbox_bridge.request_id, else session_user and 'sql'.
-- SQLSTATE OB003: the reason is unusable.
create function :"schema".app_outbox_act(
    wanted_action text,
    row_ids bigint [],
    why text,
    options jsonb default '{}',
    skip_locked boolean default false
)
returns table (outbox_id bigint, status_before text, status_after text, claim_count integer, refused text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    row_id bigint;
    was jsonb;
    becomes jsonb;
    has_new_payload boolean := coalesce((options ->> 'new_payload')::boolean, false);
    keep_payload boolean := coalesce((options ->> 'keep_payload')::boolean, false);
    -- A replay is never without an id and a rate: 100 rows a second unless another one is given.
    replay_id text := coalesce(options ->> 'replay_id', gen_random_uuid()::text);
    spacing interval := coalesce((options ->> 'spacing_seconds')::double precision, 0.01) * interval '1 second';
    dropped text[] := array(select d.name from jsonb_array_elements_text(options -> 'drop_headers') as d (name));
    is_relay text := current_setting('outbox_bridge.session', true);
    claims uuid[] := '{}';
    changed bigint := 0;
begin
    if btrim(coalesce(why, ''), E' \t\r\n') = '' then
        raise exception using
            errcode = 'OB003', message = 'the reason is blank', hint = 'Say why in a few words, the audit keeps it.';
    elsif length(why) > 1000 then
        raise exception using
            errcode = 'OB003',
            message = format('the reason has %s characters', length(why)),
            hint = 'At most 1000 are kept; shorten it.';
    end if;
    for row_id in select distinct u.id from unnest(row_ids) as u (id) where u.id is not null order by u.id
    loop
        outbox_id := row_id;
        status_before := null;
        status_after := null;
        claim_count := null;
        refused := null;
        if skip_locked then
            perform from :"schema".app_outbox as o where o.outbox_id = row_id for update skip locked;
            if not found and exists (select from :"schema".app_outbox as o where o.outbox_id = row_id) then
                refused := concat(wanted_action, ' target is locked by another transaction; try again');
            end if;
        else
            perform from :"schema".app_outbox as o where o.outbox_id = row_id for update;
        end if;
        if refused is null then
            refused := :"schema".app_outbox_obstacle(wanted_action, row_id, options);
        end if;
        if refused is not null then
            return next;
            continue;
        end if;

        was := :"schema".app_outbox_audit_state(row_id, wanted_action, has_new_payload, keep_payload);
        if wanted_action = 'retry' then
            update :"schema".app_outbox as o
            set
                status = 'PENDING',
                retry_count = case
                    when coalesce((options ->> 'keep_retry_count')::boolean, false) then o.retry_count else 0
                end,
                next_run_at = now(),
                claim_id = null,
                locked_by = null,
                locked_at = null,
                updated_at = now()
            where o.outbox_id = row_id;
        elsif wanted_action = 'cancel' then
            update :"schema".app_outbox as o
            set status = 'CANCELLED', claim_id = null, locked_by = null, locked_at = null, updated_at = now()
            where o.outbox_id = row_id;
        elsif wanted_action = 'send now' then
            update :"schema".app_outbox as o
            set next_run_at = now(), claim_id = null, updated_at = now()
            where o.outbox_id = row_id;
        elsif wanted_action = 'release' then
            claims := array_append(claims, (was ->> 'claim_id')::uuid);
            -- As a rescue by a relay: the token stays, so that a late acknowledgement still counts.
            perform set_config('outbox_bridge.session', 'relay', true);
            update :"schema".app_outbox as o
            set
                status = 'PENDING',
                last_error_code = 'STUCK_PROCESSING',
                last_error_msg = 'Recovered from PROCESSING timeout',
                locked_by = null,
                locked_at = null,
                updated_at = now()
            where o.outbox_id = row_id;
            perform set_config('outbox_bridge.session', coalesce(is_relay, ''), true);
        elsif wanted_action = 'replay' then
            update :"schema".app_outbox as o
            set
                status = 'PENDING',
                headers = o.headers || jsonb_build_object('outbox-replay-id', replay_id),
                retry_count = 0,
                next_run_at = now() + changed * spacing,
                claim_id = null,
                sent_at = null,
                sent_topic = null,
                sent_partition = -1,
                sent_offset = -1,
                updated_at = now()
            where o.outbox_id = row_id;
        elsif wanted_action = 'skip' then
            update :"schema".app_outbox_hold as h
            set released_at = now()
            where h.outbox_id = row_id and h.released_at is null;
        elsif wanted_action = 'edit' then
            update :"schema".app_outbox as o
            set
                destination = coalesce(options ->> 'destination', o.destination),
                headers = (o.headers || coalesce(options -> 'headers', '{}')) - dropped,
                payload_json = case when has_new_payload then (options ->> 'payload_json')::json else o.payload_json end,
                payload_bytes = case
                    when has_new_payload then decode(options ->> 'payload_hex', 'hex') else o.payload_bytes
                end,
                content_type = case when has_new_payload then options ->> 'content_type' else o.content_type end,
                claim_id = null,
                updated_at = now()
            where o.outbox_id = row_id;
        end if;
        changed := changed + 1;
        becomes := :"schema".app_outbox_audit_state(row_id, wanted_action, has_new_payload, false);
        status_before := was ->> 'status';
        status_after := becomes ->> 'status';
        claim_count := (was ->> 'claim_count')::integer;

        -- Status and claim_count always, else what differs.
        insert into :"schema".app_outbox_audit
        (outbox_id, action_name, reason, changed_by, before_state, after_state, source)
        select
            row_id,
            wanted_action,
            btrim(why, E' \t\r\n'),
            left(coalesce(nullif(current_setting('outbox_bridge.actor', true), ''), session_user), 128),
            jsonb_object_agg(k.name, was -> k.name) filter (where was ? k.name),
            jsonb_object_agg(k.name, becomes -> k.name) filter (where becomes ? k.name),
            left(coalesce(nullif(current_setting('outbox_bridge.source', true), ''), 'sql'), 30)
        from jsonb_object_keys(was || becomes) as k (name)
        where k.name in ('status', 'claim_count') or (was -> k.name) is distinct from (becomes -> k.name);
        return next;
    end loop;

    delete from :"schema".app_outbox_claim as c
    where
        c.claim_id = any (claims)
        and not exists (
            select
            from :"schema".app_outbox as o
            where o.outbox_id = any (c.outbox_ids) and o.claim_id = c.claim_id and o.status = 'PROCESSING'
        );
end
$$;

-- The same for one row, as people and scripts call it in SQL.
-- SQLSTATEs: OB003 the reason is unusable, OB004 the row is in the wrong state, or there is none.
create function :"schema".app_outbox_act_one(wanted_action text, row_id bigint, why text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    obstacle text;
begin
    select a.refused
    into obstacle
    from :"schema".app_outbox_act(wanted_action, array[row_id], why) as a;
    if row_id is null then
        obstacle := 'no row is named';
    end if;
    if obstacle is not null then
        raise exception using
            errcode = 'OB004',
            message = concat('outbox_id ', row_id, ': ', obstacle),
            hint = 'Nothing was changed.';
    end if;
end
$$;

create function :"schema".outbox_retry_failed(id bigint, reason text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform :"schema".app_outbox_act_one('retry', outbox_retry_failed.id, outbox_retry_failed.reason);
end
$$;

create function :"schema".outbox_cancel_message(id bigint, reason text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform :"schema".app_outbox_act_one('cancel', outbox_cancel_message.id, outbox_cancel_message.reason);
end
$$;

create function :"schema".outbox_send_now(id bigint, reason text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform :"schema".app_outbox_act_one('send now', outbox_send_now.id, outbox_send_now.reason);
end
$$;

create function :"schema".outbox_skip_message(id bigint, reason text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform :"schema".app_outbox_act_one('skip', outbox_skip_message.id, outbox_skip_message.reason);
end
$$;

-- Takes rows back whose claim is older than so many minutes, and older than the lease of the relay that
-- has it; returns how many. Uncharged; a late acknowledgement still counts.
create function :"schema".outbox_recover_stuck(minutes integer, reason text default null) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    recovered bigint;
begin
    if minutes is null or minutes < 1 then
        raise exception 'minutes is %; give 1 or more', quote_nullable(minutes)
            using errcode = 'invalid_parameter_value';
    end if;
    select count(*)
    into recovered
    from :"schema".app_outbox_act(
        'release',
        array(
            select o.outbox_id
            from :"schema".app_outbox_claim as c
            inner join :"schema".app_outbox as o on o.outbox_id = any (c.outbox_ids)
            where
                c.claimed_at < now() - make_interval(mins => minutes)
                and o.claim_id = c.claim_id
                and o.status = 'PROCESSING'
        ),
        coalesce(outbox_recover_stuck.reason, format('claimed more than %s minutes ago', minutes)),
        jsonb_build_object('stuck_minutes', minutes)
    ) as a
    where a.refused is null;
    return recovered;
end
$$;

revoke execute on function
:"schema".app_outbox_control_audit(),
:"schema".app_outbox_audit_append(bigint, xid8),
:"schema".app_outbox_audit_link(),
:"schema".app_outbox_audit_state(bigint, text, boolean, boolean),
:"schema".app_outbox_obstacle(text, bigint, jsonb),
:"schema".app_outbox_act(text, bigint [], text, jsonb, boolean),
:"schema".app_outbox_act_one(text, bigint, text),
:"schema".outbox_retry_failed(bigint, text),
:"schema".outbox_cancel_message(bigint, text),
:"schema".outbox_send_now(bigint, text),
:"schema".outbox_skip_message(bigint, text),
:"schema".outbox_recover_stuck(integer, text)
from public;

comment on column :"schema".app_outbox_audit.request_id is 'Ties the entries of one command or one click together.';
comment on column :"schema".app_outbox_audit.database_user is
'Login that the session belonged to, whatever changed_by says; null in entries from before it was kept.';

comment on column :"schema".app_outbox_audit.transaction_id is
'Transaction that wrote it: its entries join the chain together; null in older ones.';

comment on table :"schema".app_outbox_audit_link is
'Hash chain over app_outbox_audit, in the order of commits: `outbox-bridge audit verify` follows it. Append-only.';
comment on column :"schema".app_outbox_audit_link.position is 'Place in the chain, from 1, without a gap.';
comment on column :"schema".app_outbox_audit_link.audit_id is 'Entry of the audit.';
comment on column :"schema".app_outbox_audit_link.linked_at is 'When its transaction committed.';
comment on column :"schema".app_outbox_audit_link.prev_hash is 'Hash of the link before; 32 zero bytes for the first.';
comment on column :"schema".app_outbox_audit_link.hash is 'SHA-256 of prev_hash, position, linked_at and the entry.';

comment on table :"schema".app_outbox_audit_head is 'The end of the chain: one row, locked while a transaction with audit entries commits.';
comment on column :"schema".app_outbox_audit_head.is_only is 'Always true: there is one row.';
comment on column :"schema".app_outbox_audit_head.position is 'Position of the last link.';
comment on column :"schema".app_outbox_audit_head.hash is 'Hash of the last link.';

comment on function :"schema".outbox_retry_failed(bigint, text) is
'Lets a FAILED row try again: the same row, the same key, retry_count 0. Audited.';
comment on function :"schema".outbox_cancel_message(bigint, text) is 'Withdraws a PENDING or FAILED row for good. Audited.';
comment on function :"schema".outbox_send_now(bigint, text) is 'Makes a PENDING row due that waits for a later time. Audited.';
comment on function :"schema".outbox_skip_message(bigint, text) is
'Lets the followers of a row that holds its ordering key go on without it. Audited.';
comment on function :"schema".outbox_recover_stuck(integer, text) is
'Takes PROCESSING rows back that were claimed more than so many minutes ago. Audited.';
