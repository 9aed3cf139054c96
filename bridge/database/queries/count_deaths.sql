-- A relay died, froze or hung with this claim: counts that against each of its rows that are still
-- PROCESSING, before rescue_claim.sql takes them back in the same transaction. From the second death on
-- a row is to be claimed alone (the trigger parks its entry) and holds its key; from the third on it is
-- the only suspect of its relay, and one with which relays died then too often fails. Returns the rows that failed.
-- Not counted: a claim that another server process saw begin (a restart, a failover), and one of a relay
-- that was stopping (a deployment that had no patience).
-- Locks: the claim and the rows, both with SKIP LOCKED (two rescuers, a settle under way).
-- Index: app_outbox_claim_pkey, app_outbox_pkey, app_outbox_suspect_pkey, app_outbox_hold_pkey.
with claim as materialized (
    select
        c.claim_id,
        c.outbox_ids
    from :"schema".app_outbox_claim as c
    where
        c.claim_id = :'claim_id'::uuid
        and c.server_started_at = pg_postmaster_start_time()
        and not exists (
            select from :"schema".app_outbox_relay as r where r.relay_id = c.relay_id and r.stopping
        )
    for update of c skip locked
),

locked as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where
        o.outbox_id = any((select claim.outbox_ids from claim)::bigint [])
        and o.claim_id = :'claim_id'::uuid
        and o.status = 'PROCESSING'
    order by o.outbox_id
    for update of o skip locked
),

counted as (
    insert into :"schema".app_outbox_suspect as s (outbox_id, deaths)
    select
        locked.outbox_id,
        1
    from locked
    on conflict (outbox_id) do update
        set
            deaths = s.deaths + 1,
            lone_deaths = s.lone_deaths + case
                when s.deaths >= 3 and (select cardinality(claim.outbox_ids) from claim) = 1 then 1
                else 0
            end,
            died_at = now()
    returning outbox_id, deaths, lone_deaths
),

poisoned as (
    update :"schema".app_outbox as o
    set
        status = 'FAILED',
        last_error_code = :'error_code',
        last_error_msg = concat(
            'The relay died, froze or hung ', counted.deaths, ' times while it had this row, ',
            counted.lone_deaths, ' of them while it was claimed alone; last: ', o.locked_by
        ),
        locked_by = null,
        locked_at = null,
        updated_at = now()
    from counted
    where
        o.outbox_id = counted.outbox_id
        and counted.lone_deaths >= :'max_claims'::integer
        and o.status = 'PROCESSING'
    returning o.outbox_id, o.destination
),

held as (
    insert into :"schema".app_outbox_hold (
        destination, ordering_key, outbox_id, key_hash, lane, boundary, error_code
    )
    select
        o.destination,
        o.ordering_key,
        o.outbox_id,
        hashtext(o.ordering_key),
        (hashtext(o.ordering_key) & 63)::smallint,
        o.outbox_id as boundary,
        :'held_code'
    from counted
    inner join :"schema".app_outbox as o on counted.outbox_id = o.outbox_id
    where counted.deaths >= 2 and o.ordering_key is not null
    on conflict (destination, ordering_key, outbox_id) do nothing
)

select
    poisoned.outbox_id,
    poisoned.destination
from poisoned
