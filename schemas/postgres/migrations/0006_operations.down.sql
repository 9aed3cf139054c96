-- Takes the actions and the chain away; audit entries stay, without request and database user.
drop function :"schema".outbox_recover_stuck(integer, text);
drop function :"schema".outbox_skip_message(bigint, text);
drop function :"schema".outbox_send_now(bigint, text);
drop function :"schema".outbox_cancel_message(bigint, text);
drop function :"schema".outbox_retry_failed(bigint, text);
drop function :"schema".app_outbox_act_one(text, bigint, text);
drop function :"schema".app_outbox_act(text, bigint [], text, jsonb, boolean);
drop function :"schema".app_outbox_obstacle(text, bigint, jsonb);
drop function :"schema".app_outbox_audit_state(bigint, text, boolean, boolean);

alter function :"schema".app_outbox_control_audit() security invoker;

create or replace function :"schema".app_outbox_prune_audit(older_than_days integer) returns bigint
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

drop trigger app_outbox_audit_chain on :"schema".app_outbox_audit;
drop function :"schema".app_outbox_audit_link();
drop function :"schema".app_outbox_audit_append(bigint, xid8);
drop table :"schema".app_outbox_audit_head;
drop table :"schema".app_outbox_audit_link;

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

drop index :"schema".app_outbox_audit_request_id_idx;
alter table :"schema".app_outbox_audit drop column transaction_id;
alter table :"schema".app_outbox_audit drop column database_user;
alter table :"schema".app_outbox_audit drop column request_id;
