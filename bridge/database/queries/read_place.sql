-- Tells which server process answers, whether it is a standby, and how full the queue of notifications is.
-- Locks: nothing.
select
    pg_backend_pid() as pid,
    pg_is_in_recovery() as is_standby,
    pg_notification_queue_usage() as queue_usage
