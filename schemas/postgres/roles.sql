-- Roles with exactly what each part needs. Run it after `migrate up`, and again after each later one,
-- as the owner of the tables (a role that may create roles, for the first time):
--
--     psql -v ON_ERROR_STOP=1 -v schema=public -f roles.sql
--     outbox-bridge migrate roles | psql -v ON_ERROR_STOP=1
--
-- All in one transaction: an application at work never sees its rights gone.
-- The roles cannot log in; grant them to those that can: `grant outbox_relay to my_relay_login`.
--
--   outbox_writer     the application: enqueues, and sees whether a key is known
--   outbox_relay      the relay: claims, settles, rescues, prunes; cannot enqueue or change a message
--   outbox_operator   people: look at everything, set switches, act on rows through audited functions alone
--   outbox_reader     dashboards: look at everything
begin;

do $$
declare
    wanted text;
begin
    foreach wanted in array array['outbox_writer', 'outbox_relay', 'outbox_operator', 'outbox_reader']
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
revoke all on table
:"schema".app_outbox,
:"schema".app_outbox_queue,
:"schema".app_outbox_failed,
:"schema".app_outbox_counter,
:"schema".app_outbox_claim,
:"schema".app_outbox_relay,
:"schema".app_outbox_lane,
:"schema".app_outbox_hold,
:"schema".app_outbox_suspect,
:"schema".app_outbox_control,
:"schema".app_outbox_rate,
:"schema".app_outbox_audit,
:"schema".app_outbox_audit_link,
:"schema".app_outbox_audit_head,
:"schema".app_outbox_archive,
:"schema".app_outbox_migration,
:"schema".outbox_unsent,
:"schema".outbox_by_destination,
:"schema".outbox_by_status,
:"schema".outbox_oldest_unsent,
:"schema".outbox_near_retry_limit,
:"schema".outbox_by_error,
:"schema".outbox_relays,
:"schema".outbox_breakers,
:"schema".outbox_stuck,
:"schema".outbox_held_keys,
:"schema".outbox_throughput_by_destination,
:"schema".outbox_throughput
from outbox_writer, outbox_relay, outbox_operator, outbox_reader;

grant usage on schema :"schema" to outbox_writer, outbox_relay, outbox_operator, outbox_reader;

-- Writer. SELECT is for ON CONFLICT and for the look at the row that absorbed a duplicate. The
-- sequence: `enqueue_many` numbers its rows in the order they were given. The side tables are kept
-- by triggers, which have the owner's rights.
grant select on table :"schema".app_outbox to outbox_writer;
grant insert (
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
    next_run_at
) on table :"schema".app_outbox to outbox_writer;
grant usage on sequence :"schema".app_outbox_outbox_id_seq to outbox_writer;
grant execute on function :"schema".outbox_enqueue(
    text, text, text, json, jsonb, text, timestamptz, text
) to outbox_writer;

-- Relay. What was enqueued stays as it is: only the columns of delivery may change.
grant select on table :"schema".app_outbox to outbox_relay;
grant update (
    status,
    retry_count,
    next_run_at,
    last_error_code,
    last_error_msg,
    claim_count,
    claim_id,
    locked_by,
    locked_at,
    sent_partition,
    sent_offset,
    sent_topic,
    sent_at,
    updated_at
) on table :"schema".app_outbox to outbox_relay;
grant select, insert, update, delete on table
:"schema".app_outbox_queue,
:"schema".app_outbox_failed,
:"schema".app_outbox_counter,
:"schema".app_outbox_claim,
:"schema".app_outbox_relay,
:"schema".app_outbox_lane,
:"schema".app_outbox_hold,
:"schema".app_outbox_suspect
to outbox_relay;
grant select on table :"schema".app_outbox_control, :"schema".app_outbox_migration to outbox_relay;
grant select, insert, update on table :"schema".app_outbox_rate to outbox_relay;
-- Deletes what has reached its end and is old enough, nothing else.
grant execute on function
:"schema".app_outbox_prune(bigint [], boolean),
:"schema".app_outbox_prune_audit(integer)
to outbox_relay;

-- Operator.
grant select on table
:"schema".app_outbox,
:"schema".app_outbox_queue,
:"schema".app_outbox_failed,
:"schema".app_outbox_counter,
:"schema".app_outbox_claim,
:"schema".app_outbox_relay,
:"schema".app_outbox_lane,
:"schema".app_outbox_hold,
:"schema".app_outbox_suspect,
:"schema".app_outbox_control,
:"schema".app_outbox_rate,
:"schema".app_outbox_audit,
:"schema".app_outbox_audit_link,
:"schema".app_outbox_audit_head,
:"schema".app_outbox_archive,
:"schema".app_outbox_migration
to outbox_operator, outbox_reader;
-- The views are a relay's too: it tells what they show as metrics.
grant select on table
:"schema".outbox_unsent,
:"schema".outbox_by_destination,
:"schema".outbox_by_status,
:"schema".outbox_oldest_unsent,
:"schema".outbox_near_retry_limit,
:"schema".outbox_by_error,
:"schema".outbox_relays,
:"schema".outbox_breakers,
:"schema".outbox_stuck,
:"schema".outbox_held_keys,
:"schema".outbox_throughput_by_destination,
:"schema".outbox_throughput
to outbox_relay, outbox_operator, outbox_reader;
grant execute on function :"schema".app_outbox_is_quiet(
    text, timestamptz
) to outbox_relay, outbox_operator, outbox_reader;
-- Says what an action would do; reads only.
grant execute on function :"schema".app_outbox_obstacle(
    text, bigint, jsonb
) to outbox_operator, outbox_reader;
-- Rows are changed by these alone: they check the state, need a reason and leave an audit entry.
grant execute on function
:"schema".app_outbox_act(text, bigint [], text, jsonb, boolean),
:"schema".app_outbox_act_one(text, bigint, text),
:"schema".outbox_retry_failed(bigint, text),
:"schema".outbox_cancel_message(bigint, text),
:"schema".outbox_send_now(bigint, text),
:"schema".outbox_skip_message(bigint, text),
:"schema".outbox_recover_stuck(integer, text)
to outbox_operator;
-- Triggers check, stamp and audit these.
grant insert, update, delete on table :"schema".app_outbox_control to outbox_operator;

-- Lets the relay see when the oldest open transaction of other roles began. Without it the relay
-- takes a fixed margin instead, and looks over more rows.
do $$
begin
    grant pg_read_all_stats to outbox_relay;
exception when insufficient_privilege then
    raise notice 'pg_read_all_stats could not be granted to outbox_relay by %', current_user;
end
$$;

commit;
