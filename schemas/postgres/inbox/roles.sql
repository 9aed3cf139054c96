-- Roles of the inbox, with exactly what each part needs. Run it after `migrate up --set inbox`, as the owner of
-- the tables (a role that may create roles, for the first time):
--
--     psql -v ON_ERROR_STOP=1 -v schema=public -f roles.sql
--     outbox-bridge migrate roles --set inbox | psql -v ON_ERROR_STOP=1
--
-- The roles cannot log in; grant them to those that can: `grant inbox_consumer to billing_login`.
--
--   inbox_consumer    the consuming service: keeps keys and results, prunes them
--   inbox_reader      people and dashboards: look at them
begin;

do $$
declare
    wanted text;
begin
    foreach wanted in array array['inbox_consumer', 'inbox_reader']
    loop
        if not exists (select from pg_catalog.pg_roles as r where r.rolname = wanted) then
            begin
                execute pg_catalog.format('create role %I nologin', wanted);
            exception when duplicate_object or unique_violation then
                null; -- another session was faster
            end;
        end if;
    end loop;
end
$$;

-- Nothing that an older version granted stays.
revoke all on table :"schema".app_inbox, :"schema".app_inbox_migration from inbox_consumer, inbox_reader;

grant usage on schema :"schema" to inbox_consumer, inbox_reader;

-- A row is written once; what may change is the result that its own transaction adds.
grant select, insert, delete on table :"schema".app_inbox to inbox_consumer;
grant update (result_json) on table :"schema".app_inbox to inbox_consumer;
grant select on table :"schema".app_inbox to inbox_reader;
grant select on table :"schema".app_inbox_migration to inbox_consumer, inbox_reader;

commit;
