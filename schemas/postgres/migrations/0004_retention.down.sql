-- The archive goes with its rows.
drop function :"schema".app_outbox_prune_audit(integer);
drop function :"schema".app_outbox_prune(bigint [], boolean);

create or replace function :"schema".app_outbox_audit_refuse() returns trigger
language plpgsql as $$
begin
    raise exception 'app_outbox_audit is append-only: % is refused', tg_op
        using errcode = 'insufficient_privilege';
end
$$;

alter table :"schema".app_outbox_relay drop column has_lock;
drop table :"schema".app_outbox_archive;
