-- Deletes the oldest audit entries and leaves one that says so; returns how many were deleted.
-- Locks: those rows, and advisory (class, 1), which keeps two apart. Index: app_outbox_audit_pkey.
select :"schema".app_outbox_prune_audit(:'older_than_days'::integer)
