-- Lists held keys, the longest held first, up to a limit: the row that holds each, and how many parked
-- rows wait behind it (by the key's hash, counted up to 10,001).
-- Locks: nothing. Index: app_outbox_pkey, app_outbox_queue_parked_idx; reads all holds.
with first_holds as materialized (
    select
        h.destination,
        h.ordering_key,
        h.outbox_id,
        h.key_hash,
        h.boundary,
        h.error_code,
        h.held_at,
        h.released_at
    from :"schema".app_outbox_hold as h
    order by h.held_at, h.destination, h.ordering_key, h.outbox_id
    limit :'row_limit'::integer
)

select
    h.destination::text as destination,
    h.ordering_key::text as ordering_key,
    h.outbox_id,
    o.message_key,
    o.status,
    coalesce(o.last_error_code, h.error_code) as error_code,
    o.last_error_msg as error_message,
    h.held_at,
    h.released_at,
    to_json(o.next_run_at) #>> '{}' as next_run_at,
    exists(
        select from :"schema".app_outbox_suspect as s where s.outbox_id = h.outbox_id and s.deaths >= 2
    ) as is_alone,
    (
        select count(*)
        from (
            select
            from :"schema".app_outbox_queue as q
            where
                q.destination = h.destination
                and q.key_hash = h.key_hash
                and q.parked is not null
                and q.outbox_id > h.boundary
            limit 10001
        ) as followers
    ) as waiting
from first_holds as h
left join :"schema".app_outbox as o on h.outbox_id = o.outbox_id
order by h.held_at, h.destination, h.ordering_key, h.outbox_id
