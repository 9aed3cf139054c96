-- Lists every switch that is set, one a row, with who set it, when and why.
-- `effective` tells of quiet hours whether it is quiet now (null: the window cannot be read).
-- Locks: nothing. Index: app_outbox_control_pkey; the table has a row for each destination with switches.
select
    c.destination::text as destination,
    s.switch,
    s.setting,
    case
        when s.switch = 'quiet_hours' then :"schema".app_outbox_is_quiet(c.quiet_hours, now())
        else true
    end as effective,
    coalesce(c.origins -> s.switch ->> 'by', c.changed_by) as changed_by,
    coalesce((c.origins -> s.switch ->> 'at')::timestamptz, c.changed_at) as changed_at,
    coalesce(c.origins -> s.switch ->> 'reason', c.reason) as reason
from :"schema".app_outbox_control as c
cross join
    lateral (
        values
        (1, 'paused', case when c.paused then 'yes' end),
        (2, 'rows_per_second', c.rows_per_second::text),
        (3, 'batch_rows', c.batch_rows::text),
        (4, 'quiet_hours', c.quiet_hours::text)
    ) as s (position, switch, setting)
where s.setting is not null
order by c.destination, s.position
