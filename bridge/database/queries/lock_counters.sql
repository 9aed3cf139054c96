-- Keeps triggers and settles from counting while a recount is under way; readers go on.
-- Locks: both tables in SHARE ROW EXCLUSIVE mode, until the transaction ends.
lock table :"schema".app_outbox_counter, :"schema".app_outbox_failed in share row exclusive mode
