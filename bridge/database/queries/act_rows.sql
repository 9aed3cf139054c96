-- Does one action to the given rows and leaves an audit entry for each that it changes; tells of each row
-- its status before and after, how often it had been handed to Kafka, or why it was left.
-- Locks: the rows, by ascending id, and at commit the end of the audit's chain. With skip_locked rows
-- that somebody else has locked are left. Index: app_outbox_pkey.
select
    a.outbox_id,
    a.status_before,
    a.status_after,
    a.claim_count,
    a.refused
from :"schema".app_outbox_act(
    :'action'::text, :'outbox_ids'::bigint [], :'reason'::text, :'options'::jsonb, :'skip_locked'::boolean
) as a
