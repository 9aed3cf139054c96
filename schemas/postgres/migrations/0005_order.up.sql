-- Held keys, rows claimed alone, and claims of ordered rows by destination.
--
-- Everything here is looked at only where a table is not empty: with no key held and no row suspect,
-- claim and settle pay for one look into an empty table per statement.

-- By destination first: a closed destination's backlog is not walked over. The index keeps its name,
-- which a relay of the version before looks for.
drop index :"schema".app_outbox_queue_lane_idx;

create index app_outbox_queue_lane_idx
on :"schema".app_outbox_queue (destination, lane, outbox_id)
where lane is not null and parked is null;

create index app_outbox_queue_parked_idx
on :"schema".app_outbox_queue (destination, key_hash, outbox_id)
where parked is not null;

create index app_outbox_queue_alone_idx
on :"schema".app_outbox_queue (outbox_id)
where parked = 'p';

-- One row for each row that holds up its key. Of a key's rows those up to the lowest boundary may go.
create table :"schema".app_outbox_hold (
    destination varchar(200) collate "C" not null,
    ordering_key varchar(200) collate "C" not null,
    outbox_id bigint not null,
    key_hash integer not null,
    lane smallint not null,
    boundary bigint not null,
    error_code varchar(100),
    held_at timestamptz not null default now(),
    released_at timestamptz,
    constraint app_outbox_hold_pkey primary key (destination, ordering_key, outbox_id)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

create index app_outbox_hold_boundary_idx
on :"schema".app_outbox_hold (destination, key_hash, boundary);

create index app_outbox_hold_outbox_id_idx
on :"schema".app_outbox_hold (outbox_id);

create index app_outbox_hold_released_idx
on :"schema".app_outbox_hold (released_at)
where released_at is not null;

create table :"schema".app_outbox_suspect (
    outbox_id bigint primary key,
    deaths integer not null,
    lone_deaths integer not null default 0,
    died_at timestamptz not null default now()
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- A claim that another server process saw begin (a restart, a failover) says nothing about its rows.
alter table :"schema".app_outbox_claim
add column server_started_at timestamptz not null default pg_postmaster_start_time();

-- As before, and:
-- * A row whose relay died twice while it had it waits apart, to be claimed alone.
-- * A row that went on (SENT, CANCELLED, moved to another key) holds up nobody any more.
-- * What somebody else decided about a row takes the fencing token away, so that a late acknowledgement
--   matches nothing. The relay's own sessions say who they are: its rescue keeps the token. Not a BEFORE
--   trigger: that would lock each row once more in every claim and settle.
create or replace function :"schema".app_outbox_after_update() returns trigger
language plpgsql security definer as $$
declare
    has_moved pg_catalog.bool := old.destination operator(pg_catalog.<>) new.destination
        or coalesce(old.ordering_key, '') operator(pg_catalog.<>) coalesce(new.ordering_key, '');
begin
    if new.status operator(pg_catalog.=) 'PENDING' and (
        old.status operator(pg_catalog.<>) 'PENDING'
        or old.next_run_at operator(pg_catalog.<>) new.next_run_at
        or has_moved
    ) then
        insert into :"schema".app_outbox_queue (outbox_id, destination, next_run_at, lane, key_hash, parked)
        values (
            new.outbox_id,
            new.destination,
            new.next_run_at,
            (pg_catalog.hashtext(new.ordering_key) operator(pg_catalog.&) 63)::pg_catalog.int2,
            pg_catalog.hashtext(new.ordering_key),
            case when exists (
                select
                from :"schema".app_outbox_suspect as s
                where s.outbox_id operator(pg_catalog.=) new.outbox_id and s.deaths operator(pg_catalog.>=) 2
            ) then 'p'::pg_catalog."char" end
        );
        if not pg_catalog.pg_try_advisory_xact_lock_shared(:'wake_class', 0) then
            if coalesce(pg_catalog.current_setting('outbox_bridge.notify', true), 'on')
                operator(pg_catalog.<>) 'off'
            then
                perform pg_catalog.pg_notify(:'wake_channel', '');
            end if;
        end if;
    end if;
    if new.status operator(pg_catalog.=) 'FAILED' then
        insert into :"schema".app_outbox_failed (outbox_id, destination, event_type, error_code)
        values (new.outbox_id, new.destination, new.event_type, new.last_error_code)
        on conflict (outbox_id) do update
        set destination = excluded.destination,
            event_type = excluded.event_type,
            error_code = excluded.error_code;
    elsif old.status operator(pg_catalog.=) 'FAILED' then
        delete from :"schema".app_outbox_failed as f
        where f.outbox_id operator(pg_catalog.=) old.outbox_id;
    end if;
    if old.status operator(pg_catalog.=) 'SENT' or old.status operator(pg_catalog.=) 'CANCELLED' then
        insert into :"schema".app_outbox_counter (destination, status, delta)
        values (old.destination, old.status, -1);
    end if;
    if new.status operator(pg_catalog.=) 'SENT' or new.status operator(pg_catalog.=) 'CANCELLED' then
        insert into :"schema".app_outbox_counter (destination, status, delta)
        values (new.destination, new.status, 1);
        delete from :"schema".app_outbox_suspect as s
        where s.outbox_id operator(pg_catalog.=) new.outbox_id;
    elsif old.status operator(pg_catalog.=) 'FAILED' and new.status operator(pg_catalog.=) 'PENDING' then
        update :"schema".app_outbox_suspect as s
        set lone_deaths = 0
        where s.outbox_id operator(pg_catalog.=) new.outbox_id;
    end if;
    if old.ordering_key is not null and (
        has_moved
        or new.status operator(pg_catalog.=) 'SENT'
        or new.status operator(pg_catalog.=) 'CANCELLED'
    ) then
        update :"schema".app_outbox_hold as h
        set released_at = pg_catalog.now()
        where h.outbox_id operator(pg_catalog.=) old.outbox_id and h.released_at is null;
    end if;
    if new.claim_id operator(pg_catalog.=) old.claim_id
        and (new.status operator(pg_catalog.=) 'PENDING' or new.status operator(pg_catalog.=) 'CANCELLED')
        and coalesce(pg_catalog.current_setting('outbox_bridge.session', true), '') operator(pg_catalog.<>) 'relay'
    then
        update :"schema".app_outbox as o
        set claim_id = null
        where o.outbox_id operator(pg_catalog.=) new.outbox_id;
    end if;
    return null;
end
$$;

-- The same for new content of a row that waits: what may still be under way is the old content.
create function :"schema".app_outbox_after_edit() returns trigger
language plpgsql security definer as $$
begin
    update :"schema".app_outbox as o
    set claim_id = null
    where o.outbox_id operator(pg_catalog.=) new.outbox_id;
    return null;
end
$$;

create trigger app_outbox_after_edit
after update of message_key, event_type, content_type, headers, payload_json, payload_bytes
on :"schema".app_outbox
for each row when (new.status = 'PENDING' and new.claim_id = old.claim_id)
execute function :"schema".app_outbox_after_edit();

create or replace function :"schema".app_outbox_after_delete() returns trigger
language plpgsql security definer as $$
begin
    insert into :"schema".app_outbox_counter (destination, status, delta)
    select o.destination, o.status, operator(pg_catalog.-) pg_catalog.count(*)
    from old_rows as o
    where o.status operator(pg_catalog.=) 'SENT' or o.status operator(pg_catalog.=) 'CANCELLED'
    group by o.destination, o.status;
    delete from :"schema".app_outbox_failed as f
    using old_rows as o
    where
        f.outbox_id operator(pg_catalog.=) o.outbox_id
        and o.status operator(pg_catalog.=) 'FAILED';
    if exists (select from :"schema".app_outbox_hold) then
        update :"schema".app_outbox_hold as h
        set released_at = pg_catalog.now()
        from old_rows as o
        where h.outbox_id operator(pg_catalog.=) o.outbox_id and h.released_at is null;
    end if;
    if exists (select from :"schema".app_outbox_suspect) then
        delete from :"schema".app_outbox_suspect as s
        using old_rows as o
        where s.outbox_id operator(pg_catalog.=) o.outbox_id;
    end if;
    return null;
end
$$;

create or replace function :"schema".app_outbox_after_truncate() returns trigger
language plpgsql security definer as $$
begin
    delete from :"schema".app_outbox_queue;
    delete from :"schema".app_outbox_failed;
    delete from :"schema".app_outbox_counter;
    delete from :"schema".app_outbox_hold;
    delete from :"schema".app_outbox_suspect;
    return null;
end
$$;

revoke execute on function :"schema".app_outbox_after_edit() from public;

comment on column :"schema".app_outbox_claim.server_started_at is
'Start of the server that made it: a death is not counted against the rows of a claim made before a restart or a failover.';
comment on column :"schema".app_outbox_queue.parked is
'Why the entry waits apart: k its key is held, p to be claimed alone; null: not parked.';

comment on table :"schema".app_outbox_hold is
'One row for each row that holds up its key: rows of the key with a higher id wait. To let them go: set released_at.';
comment on column :"schema".app_outbox_hold.destination is 'Destination of the held key.';
comment on column :"schema".app_outbox_hold.ordering_key is 'The held key.';
comment on column :"schema".app_outbox_hold.outbox_id is 'The row that holds it: it failed, or is to be claimed alone.';
comment on column :"schema".app_outbox_hold.key_hash is 'Hash of the key, as in the queue.';
comment on column :"schema".app_outbox_hold.lane is 'Lane of the key; its owner lets the followers go.';
comment on column :"schema".app_outbox_hold.boundary is
'Rows of the key up to this id may go: the holding row''s own id, moving up step by step once it is released.';
comment on column :"schema".app_outbox_hold.error_code is 'Why it is held.';
comment on column :"schema".app_outbox_hold.held_at is 'Since when.';
comment on column :"schema".app_outbox_hold.released_at is
'Set when the holding row was sent, cancelled, deleted, moved or skipped, and by each step in which its followers come back; then the hold goes.';

comment on table :"schema".app_outbox_suspect is 'Rows whose relay died while it had them; a row leaves when it is sent.';
comment on column :"schema".app_outbox_suspect.outbox_id is 'Row of app_outbox.';
comment on column :"schema".app_outbox_suspect.deaths is 'How often a relay died with it; from 2 on it is claimed alone.';
comment on column :"schema".app_outbox_suspect.lone_deaths is 'How often while it was claimed alone; too often: FAILED as POISON.';
comment on column :"schema".app_outbox_suspect.died_at is 'When that last happened.';
