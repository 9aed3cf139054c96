-- Reads the switches of one destination to change them.
-- Locks: its row, for the transaction. Index: app_outbox_control_pkey.
select
    c.paused,
    c.rows_per_second,
    c.batch_rows,
    c.quiet_hours::text as quiet_hours
from :"schema".app_outbox_control as c
where c.destination = :'destination'
for update of c
