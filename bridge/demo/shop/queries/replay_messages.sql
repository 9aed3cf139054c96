-- Sends the latest messages of an outbox once more: the same rows, the same keys.
-- Locks: those rows. Index: app_outbox_pkey.
update :"schema".app_outbox set status = 'PENDING', next_run_at = now()
where outbox_id in (
    select o.outbox_id from :"schema".app_outbox as o
    where o.status = 'SENT'
    order by o.outbox_id desc
    limit :'count'::bigint
)
