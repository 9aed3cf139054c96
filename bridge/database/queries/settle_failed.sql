-- Writes the outcome of failed attempts: PENDING with a later next_run_at, or FAILED.
-- Locks: the rows (lock_failures.sql already holds them). Index: app_outbox_pkey.
update :"schema".app_outbox as o
set
    status = failure.status,
    retry_count = o.retry_count + failure.charge,
    next_run_at = now() + failure.delay * interval '1 second',
    last_error_code = failure.error_code,
    last_error_msg = failure.error_message,
    locked_by = null,
    locked_at = null,
    updated_at = now()
from
    unnest(
        :'outbox_ids'::bigint [], :'statuses'::text [], :'charges'::integer [], :'delays'::float8 [],
        :'error_codes'::text [], :'error_messages'::text []
    ) as failure (outbox_id, status, charge, delay, error_code, error_message)
where
    o.outbox_id = failure.outbox_id
    and case when o.status = 'PROCESSING' then true else false end
