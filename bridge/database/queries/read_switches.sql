-- Reads the switches that are in force, and whether it is quiet now (`at`: at that time, for tests).
-- `quiet` is null where the window cannot be read.
-- Locks: nothing. Index: app_outbox_control_pkey; the table has a row for each destination with switches.
select
    c.destination::text as destination,
    c.paused,
    c.rows_per_second,
    c.batch_rows,
    c.quiet_hours::text as quiet_hours,
    :"schema".app_outbox_is_quiet(c.quiet_hours, coalesce(:'at'::timestamptz, now())) as quiet
from :"schema".app_outbox_control as c
where
    c.paused
    or c.rows_per_second is not null
    or c.batch_rows is not null
    or c.quiet_hours is not null
order by c.destination
