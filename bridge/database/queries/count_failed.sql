-- Counts FAILED rows by destination and error code, with the first and the latest time.
-- Locks: nothing. Index: app_outbox_failed_destination_idx.
select
    f.destination,
    f.error_code,
    count(*) as rows_counted,
    min(f.failed_at) as first_at,
    max(f.failed_at) as latest_at
from :"schema".app_outbox_failed as f
group by f.destination, f.error_code
order by f.destination asc, rows_counted desc, f.error_code asc
