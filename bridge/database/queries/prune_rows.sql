-- Deletes rows at their end, archived first where asked, and returns how many.
-- Locks: the rows; lock_prunable.sql already holds them. Index: app_outbox_pkey.
select :"schema".app_outbox_prune(:'outbox_ids'::bigint [], :'keep_in_archive'::boolean)
