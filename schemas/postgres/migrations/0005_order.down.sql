-- Parked entries come back at once: nothing looks at them any more.
update :"schema".app_outbox_queue
set parked = null
where parked is not null;

drop trigger app_outbox_after_edit on :"schema".app_outbox;

drop function :"schema".app_outbox_after_edit();

create or replace function :"schema".app_outbox_after_update() returns trigger
language plpgsql security definer as $$
begin
    if new.status operator(pg_catalog.=) 'PENDING' and (
        old.status operator(pg_catalog.<>) 'PENDING'
        or old.next_run_at operator(pg_catalog.<>) new.next_run_at
        or old.destination operator(pg_catalog.<>) new.destination
        or coalesce(old.ordering_key, '') operator(pg_catalog.<>) coalesce(new.ordering_key, '')
    ) then
        insert into :"schema".app_outbox_queue (outbox_id, destination, next_run_at, lane, key_hash)
        values (
            new.outbox_id,
            new.destination,
            new.next_run_at,
            (pg_catalog.hashtext(new.ordering_key) operator(pg_catalog.&) 63)::pg_catalog.int2,
            pg_catalog.hashtext(new.ordering_key)
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
    end if;
    return null;
end
$$;

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
    return null;
end
$$;

create or replace function :"schema".app_outbox_after_truncate() returns trigger
language plpgsql security definer as $$
begin
    delete from :"schema".app_outbox_queue;
    delete from :"schema".app_outbox_failed;
    delete from :"schema".app_outbox_counter;
    return null;
end
$$;

alter table :"schema".app_outbox_claim
drop column server_started_at;

drop table :"schema".app_outbox_suspect;

drop table :"schema".app_outbox_hold;

drop index :"schema".app_outbox_queue_alone_idx;

drop index :"schema".app_outbox_queue_parked_idx;

drop index :"schema".app_outbox_queue_lane_idx;

create index app_outbox_queue_lane_idx
on :"schema".app_outbox_queue (lane, outbox_id)
where lane is not null and parked is null;

comment on column :"schema".app_outbox_queue.parked is 'Why the entry waits and is not looked at; null: not parked.';
