-- Retention: an archive table, the functions that alone may delete, and relays without a session lock.
--
-- Nobody but the owner may delete from the outbox or the audit table. The relay prunes through the two
-- functions below, which delete nothing that is still to be sent and nothing recent from the audit.

create table :"schema".app_outbox_archive (
    outbox_id bigint not null,
    message_key varchar(200) not null,
    event_type varchar(100) not null,
    destination varchar(200) not null,
    ordering_key varchar(200),
    content_type varchar(100),
    created_at timestamptz not null,
    headers jsonb not null,
    payload_json json,
    payload_bytes bytea,
    max_retry_count integer not null,
    retry_count integer not null,
    next_run_at timestamptz not null,
    last_error_code varchar(100),
    last_error_msg varchar(1000),
    status varchar(20) not null,
    claim_count integer not null,
    sent_partition integer not null,
    sent_offset bigint not null,
    sent_topic text,
    locked_by varchar(128),
    locked_at timestamptz,
    claim_id uuid,
    sent_at timestamptz,
    updated_at timestamptz not null,
    archived_at timestamptz not null default now(),
    constraint app_outbox_archive_pkey primary key (outbox_id, archived_at)
);

alter table :"schema".app_outbox_relay add column has_lock boolean not null default true;

-- Deletes rows that have reached their end, those of other states are left alone; with
-- keep_in_archive they are copied to app_outbox_archive first. Returns how many were deleted. The
-- delete trigger keeps counters and lists right.
create function :"schema".app_outbox_prune(outbox_ids bigint [], keep_in_archive boolean) returns bigint
language plpgsql security definer as $$
#variable_conflict use_variable
declare
    pruned pg_catalog.int8;
begin
    if keep_in_archive then
        insert into :"schema".app_outbox_archive (
            outbox_id,
            message_key,
            event_type,
            destination,
            ordering_key,
            content_type,
            created_at,
            headers,
            payload_json,
            payload_bytes,
            max_retry_count,
            retry_count,
            next_run_at,
            last_error_code,
            last_error_msg,
            status,
            claim_count,
            sent_partition,
            sent_offset,
            sent_topic,
            locked_by,
            locked_at,
            claim_id,
            sent_at,
            updated_at
        )
        select
            o.outbox_id,
            o.message_key,
            o.event_type,
            o.destination,
            o.ordering_key,
            o.content_type,
            o.created_at,
            o.headers,
            o.payload_json,
            o.payload_bytes,
            o.max_retry_count,
            o.retry_count,
            o.next_run_at,
            o.last_error_code,
            o.last_error_msg,
            o.status,
            o.claim_count,
            o.sent_partition,
            o.sent_offset,
            o.sent_topic,
            o.locked_by,
            o.locked_at,
            o.claim_id,
            o.sent_at,
            o.updated_at
        from :"schema".app_outbox as o
        where
            o.outbox_id operator(pg_catalog.=) any (outbox_ids)
            and o.status operator(pg_catalog.=) any (array['SENT', 'CANCELLED', 'FAILED']);
    end if;
    delete from :"schema".app_outbox as o
    where
        o.outbox_id operator(pg_catalog.=) any (outbox_ids)
        and o.status operator(pg_catalog.=) any (array['SENT', 'CANCELLED', 'FAILED']);
    get diagnostics pruned := row_count;
    return pruned;
end
$$;

-- Audit rows are written once, and taken away only by app_outbox_prune_audit.
create or replace function :"schema".app_outbox_audit_refuse() returns trigger
language plpgsql as $$
begin
    if tg_op operator(pg_catalog.=) 'DELETE'
        and coalesce(pg_catalog.current_setting('outbox_bridge.prunes_audit', true), '')
            operator(pg_catalog.=) 'on'
    then
        return null;
    end if;
    raise exception 'app_outbox_audit is append-only: % is refused', tg_op
        using errcode = 'insufficient_privilege';
end
$$;

-- Deletes the oldest audit rows, up to the first that is younger than so many days (at least 30), so
-- that what stays is without a gap; an audit row says which were deleted, by whom and when. Returns
-- how many were deleted.
create function :"schema".app_outbox_prune_audit(older_than_days integer) returns bigint
language plpgsql security definer as $$
#variable_conflict use_variable
declare
    first_kept pg_catalog.int8;
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
    select a.audit_id
    into first_kept
    from :"schema".app_outbox_audit as a
    where a.changed_at operator(pg_catalog.>=)
        (pg_catalog.now() operator(pg_catalog.-) pg_catalog.make_interval(days => older_than_days))
    order by a.audit_id
    limit 1;
    select pg_catalog.min(a.audit_id), pg_catalog.max(a.audit_id), pg_catalog.count(*)
    into first_id, last_id, pruned
    from :"schema".app_outbox_audit as a
    where first_kept is null or a.audit_id operator(pg_catalog.<) first_kept;
    if pruned operator(pg_catalog.=) 0 then
        return 0;
    end if;
    perform pg_catalog.set_config('outbox_bridge.prunes_audit', 'on', true);
    delete from :"schema".app_outbox_audit as a
    where a.audit_id operator(pg_catalog.<=) last_id;
    perform pg_catalog.set_config('outbox_bridge.prunes_audit', '', true);
    insert into :"schema".app_outbox_audit (action_name, reason, changed_by, before_state, source)
    values (
        'prune audit',
        pg_catalog.format('audit entries older than %s days are not kept', older_than_days),
        session_user,
        pg_catalog.jsonb_build_object('first_audit_id', first_id, 'last_audit_id', last_id, 'entries', pruned),
        'relay'
    );
    return pruned;
end
$$;

revoke execute on function
:"schema".app_outbox_prune(bigint [], boolean),
:"schema".app_outbox_prune_audit(integer)
from public;

comment on table :"schema".app_outbox_archive is
'Rows that retention took out of app_outbox, where retention.archive = "table" asks for it; never read by a relay.';
comment on column :"schema".app_outbox_archive.outbox_id is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.message_key is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.event_type is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.destination is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.ordering_key is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.content_type is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.created_at is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.headers is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.payload_json is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.payload_bytes is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.max_retry_count is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.retry_count is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.next_run_at is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.last_error_code is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.last_error_msg is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.status is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.claim_count is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.sent_partition is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.sent_offset is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.sent_topic is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.locked_by is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.locked_at is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.claim_id is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.sent_at is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.updated_at is 'As in app_outbox.';
comment on column :"schema".app_outbox_archive.archived_at is 'When the row was taken out of app_outbox.';
comment on column :"schema".app_outbox_relay.has_lock is
'Whether the relay''s session lock tells that it lives; false behind a transaction pooler: the lease alone does.';
