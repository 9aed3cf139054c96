-- Run-time switches: checked and stamped whoever writes them, audited, told to sleeping relays; and
-- the buckets that the relays share for rate limits.
--
-- The trigger on app_outbox_control is the one place that writes the audit rows of switches, so a plain
-- INSERT, UPDATE or DELETE is audited like a command. Who did it and by what means is taken from the
-- session settings outbox_bridge.actor and outbox_bridge.source (the command line sets them for its
-- transaction), else session_user and 'sql'.
-- The functions run with the caller's rights and name everything in full (see 0001_outbox).

alter table :"schema".app_outbox_control add column origins jsonb not null default '{}';

create table :"schema".app_outbox_rate (
    destination varchar(200) collate "C" primary key,
    tokens double precision not null,
    granted integer not null,
    refilled_at timestamptz not null
) with (
    -- A few rows, each updated some ten times a second: room for many HOT updates.
    fillfactor = 20,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- Quiet means that the clock on the wall of that time zone shows a time within the window. So the
-- window follows the zone's changes to summer time and back: an hour that is left out is not quiet,
-- an hour that comes twice is quiet twice.
create function :"schema".app_outbox_is_quiet(quiet_hours text, moment timestamptz) returns boolean
language plpgsql stable as $$
declare
    part pg_catalog.text[];
    starts pg_catalog.time;
    ends pg_catalog.time;
    wall pg_catalog.time;
begin
    if quiet_hours is null then
        return false;
    end if;
    part := pg_catalog.regexp_match(
        quiet_hours, '^((?:[01][0-9]|2[0-3]):[0-5][0-9])-((?:[01][0-9]|2[0-3]):[0-5][0-9]) ([^ ]+)$'
    );
    starts := part[1]::pg_catalog.time;
    ends := part[2]::pg_catalog.time;
    if part is null or starts operator(pg_catalog.=) ends then
        return null;
    end if;
    wall := pg_catalog.timezone(part[3], moment)::pg_catalog.time;
    if starts operator(pg_catalog.<) ends then
        return wall operator(pg_catalog.>=) starts and wall operator(pg_catalog.<) ends;
    end if;
    return wall operator(pg_catalog.>=) starts or wall operator(pg_catalog.<) ends;
exception when data_exception then
    return null; -- a time zone that this server does not know
end
$$;

create function :"schema".app_outbox_control_stamp() returns trigger
language plpgsql as $$
declare
    wrong pg_catalog.text;
    advice pg_catalog.text;
    origin pg_catalog.jsonb;
begin
    if pg_catalog.btrim(coalesce(new.reason, '')) operator(pg_catalog.=) '' then
        wrong := 'a switch needs a reason';
        advice := 'Say why in the column reason.';
    elsif new.destination operator(pg_catalog.=) '' then
        wrong := 'destination is empty';
        advice := 'Name a destination, or * for all.';
    elsif old.destination operator(pg_catalog.<>) new.destination then
        wrong := 'the destination of a switch cannot be changed';
        advice := 'Insert a row for the other destination.';
    elsif new.quiet_hours is not null
        and coalesce(old.quiet_hours, '') operator(pg_catalog.<>) new.quiet_hours
        and (
            :"schema".app_outbox_is_quiet(new.quiet_hours, pg_catalog.now()) is null
            or not exists (
                select from pg_catalog.pg_timezone_names as z
                where z.name operator(pg_catalog.=)
                    pg_catalog.split_part(new.quiet_hours::pg_catalog.text, ' ', 2)
            )
        )
    then
        wrong := pg_catalog.format('quiet_hours %L is no daily window', new.quiet_hours);
        advice := 'Write it as 23:00-06:00 Asia/Tokyo, with a name from pg_timezone_names.';
    end if;
    if wrong is not null then
        raise exception using
            errcode = 'check_violation',
            message = pg_catalog.concat('app_outbox_control: ', wrong),
            hint = advice,
            table = 'app_outbox_control';
    end if;

    new.changed_by := pg_catalog.left(coalesce(
        nullif(pg_catalog.current_setting('outbox_bridge.actor', true), ''), session_user
    )::pg_catalog.text, 128);
    new.changed_at := pg_catalog.now();
    origin := pg_catalog.jsonb_build_object(
        'by', new.changed_by, 'at', new.changed_at, 'reason', new.reason
    );
    new.origins := coalesce(old.origins, '{}');
    if coalesce(old.paused, false) operator(pg_catalog.<>) new.paused then
        new.origins := new.origins operator(pg_catalog.||)
            pg_catalog.jsonb_build_object('paused', origin);
    end if;
    if coalesce(old.rows_per_second, 0) operator(pg_catalog.<>) coalesce(new.rows_per_second, 0) then
        new.origins := new.origins operator(pg_catalog.||)
            pg_catalog.jsonb_build_object('rows_per_second', origin);
    end if;
    if coalesce(old.batch_rows, 0) operator(pg_catalog.<>) coalesce(new.batch_rows, 0) then
        new.origins := new.origins operator(pg_catalog.||)
            pg_catalog.jsonb_build_object('batch_rows', origin);
    end if;
    if coalesce(old.quiet_hours, '') operator(pg_catalog.<>) coalesce(new.quiet_hours, '') then
        new.origins := new.origins operator(pg_catalog.||)
            pg_catalog.jsonb_build_object('quiet_hours', origin);
    end if;
    return new;
end
$$;

create trigger app_outbox_control_stamp
before insert or update on :"schema".app_outbox_control
for each row execute function :"schema".app_outbox_control_stamp();

create function :"schema".app_outbox_control_audit() returns trigger
language plpgsql as $$
declare
    actions pg_catalog.text[] := '{}';
    was pg_catalog.jsonb;
    becomes pg_catalog.jsonb;
    why pg_catalog.text := new.reason;
begin
    if coalesce(old.paused, false) operator(pg_catalog.<>) coalesce(new.paused, false) then
        actions := pg_catalog.array_append(
            actions, case when new.paused then 'pause'::pg_catalog.text else 'resume' end
        );
    end if;
    if coalesce(old.rows_per_second, 0) operator(pg_catalog.<>) coalesce(new.rows_per_second, 0) then
        actions := pg_catalog.array_append(actions, 'limit'::pg_catalog.text);
    end if;
    if coalesce(old.batch_rows, 0) operator(pg_catalog.<>) coalesce(new.batch_rows, 0) then
        actions := pg_catalog.array_append(actions, 'batch'::pg_catalog.text);
    end if;
    if coalesce(old.quiet_hours, '') operator(pg_catalog.<>) coalesce(new.quiet_hours, '') then
        actions := pg_catalog.array_append(actions, 'quiet'::pg_catalog.text);
    end if;
    if pg_catalog.cardinality(actions) operator(pg_catalog.=) 0 then
        actions := array['note'];
    end if;
    if tg_op operator(pg_catalog.<>) 'INSERT' then
        was := pg_catalog.jsonb_build_object(
            'destination', old.destination, 'paused', old.paused,
            'rows_per_second', old.rows_per_second, 'batch_rows', old.batch_rows,
            'quiet_hours', old.quiet_hours
        );
    end if;
    if tg_op operator(pg_catalog.<>) 'DELETE' then
        becomes := pg_catalog.jsonb_build_object(
            'destination', new.destination, 'paused', new.paused,
            'rows_per_second', new.rows_per_second, 'batch_rows', new.batch_rows,
            'quiet_hours', new.quiet_hours
        );
    else
        -- A DELETE has no column for it; the session may say why.
        why := coalesce(
            nullif(pg_catalog.btrim(pg_catalog.current_setting('outbox_bridge.reason', true)), ''),
            pg_catalog.concat('row deleted; it was set because: ', coalesce(old.reason, '(not said)'))
        );
    end if;
    insert into :"schema".app_outbox_audit
    (action_name, reason, changed_by, before_state, after_state, source)
    select
        a.action_name,
        pg_catalog.left(why, 1000),
        pg_catalog.left(coalesce(
            nullif(pg_catalog.current_setting('outbox_bridge.actor', true), ''), session_user
        )::pg_catalog.text, 128),
        was,
        becomes,
        pg_catalog.left(coalesce(
            nullif(pg_catalog.current_setting('outbox_bridge.source', true), ''), 'sql'
        ), 30)
    from pg_catalog.unnest(actions) as a (action_name);
    if coalesce(pg_catalog.current_setting('outbox_bridge.notify', true), 'on')
        operator(pg_catalog.<>) 'off'
    then
        perform pg_catalog.pg_notify(:'wake_channel', '');
    end if;
    return null;
end
$$;

create trigger app_outbox_control_audit
after insert or update or delete on :"schema".app_outbox_control
for each row execute function :"schema".app_outbox_control_audit();

-- A TRUNCATE would pass the row triggers by.
create function :"schema".app_outbox_control_truncate() returns trigger
language plpgsql as $$
begin
    delete from :"schema".app_outbox_control;
    return null;
end
$$;

create trigger app_outbox_control_truncate
before truncate on :"schema".app_outbox_control
for each statement execute function :"schema".app_outbox_control_truncate();

comment on column :"schema".app_outbox_control.reason is 'Why it was last changed; never blank.';
comment on column :"schema".app_outbox_control.changed_by is 'Who last changed it; stamped by a trigger.';
comment on column :"schema".app_outbox_control.changed_at is 'When it was last changed; stamped by a trigger.';
comment on column :"schema".app_outbox_control.quiet_hours is
'Daily window without sending, such as 23:00-06:00 Asia/Tokyo; null: none.';
comment on column :"schema".app_outbox_control.batch_rows is
'Rows of the destination per claim, where that is less than the relay''s setting; null: no such limit.';
comment on column :"schema".app_outbox_control.origins is
'Who set each switch, when and why: an object by column name; stamped by a trigger.';

comment on table :"schema".app_outbox_rate is
'Token buckets of the rate limits, shared by the relays; kept by them, made when first needed.';
comment on column :"schema".app_outbox_rate.destination is 'Destination whose limit it is, or * for the common one.';
comment on column :"schema".app_outbox_rate.tokens is 'Rows that may be claimed, as of refilled_at.';
comment on column :"schema".app_outbox_rate.granted is 'Rows that the latest request was given.';
comment on column :"schema".app_outbox_rate.refilled_at is 'Up to when tokens are counted, by the database''s clock.';
