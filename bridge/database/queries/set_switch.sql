-- Sets one switch of one destination (`switch` names the column) and leaves the others as they are.
-- Changes nothing, and returns no row, where it stands so already. The triggers stamp and audit it.
-- Locks: the row of the destination. Index: app_outbox_control_pkey.
insert into :"schema".app_outbox_control as c
(destination, paused, rows_per_second, batch_rows, quiet_hours, reason)
select
    :'destination'::text,
    :'paused'::boolean,
    :'rows_per_second'::integer,
    :'batch_rows'::integer,
    :'quiet_hours'::text,
    :'reason'::text
where
    :'paused'::boolean
    or num_nonnulls(:'rows_per_second'::integer, :'batch_rows'::integer, :'quiet_hours'::text) > 0
    or exists (select from :"schema".app_outbox_control as k where k.destination = :'destination'::text)
on conflict (destination) do update
    set
        paused = case when :'switch'::text = 'paused' then excluded.paused else c.paused end,
        rows_per_second = case
            when :'switch'::text = 'rows_per_second' then excluded.rows_per_second else c.rows_per_second
        end,
        batch_rows = case when :'switch'::text = 'batch_rows' then excluded.batch_rows else c.batch_rows end,
        quiet_hours = case when :'switch'::text = 'quiet_hours' then excluded.quiet_hours else c.quiet_hours end,
        reason = excluded.reason
    where
    case :'switch'::text
        when 'paused' then c.paused <> excluded.paused
        when 'rows_per_second' then c.rows_per_second is distinct from excluded.rows_per_second
        when 'batch_rows' then c.batch_rows is distinct from excluded.batch_rows
        else c.quiet_hours is distinct from excluded.quiet_hours
    end
returning c.changed_by
