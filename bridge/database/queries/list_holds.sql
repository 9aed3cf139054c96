-- Lists held keys, the longest held first, the row that holds each, and how many parked rows wait behind
-- it (by the key's hash); at most so many (null: all).
-- Locks: nothing. Index: app_outbox_pkey, app_outbox_queue_parked_idx; reads all holds.
select
    h.destination,
    h.ordering_key,
    h.outbox_id,
    h.message_key,
    h.status,
    h.error_code,
    h.error_message,
    h.held_at,
    h.released_at,
    to_json(h.next_run_at) #>> '{}' as next_run_at,
    h.is_alone,
    h.waiting
from :"schema".outbox_held_keys as h
where :'destinations'::text [] is null or h.destination = any(:'destinations'::text [])
order by h.held_at, h.destination, h.ordering_key, h.outbox_id
limit :'row_limit'::bigint
