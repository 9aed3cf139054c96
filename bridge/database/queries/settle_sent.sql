-- Marks acknowledged rows SENT, fenced by claim_id alone: a row that was claimed, edited or cancelled
-- since matches nothing and counts as a lost lease. Counts the rows by destination and deletes the
-- claims whose last row this was.
-- Locks: the rows, in id order (two settles in opposite order would deadlock). Waits at most
-- lock_timeout for a person's open transaction, then lock_rows.sql finds the others.
-- Index: app_outbox_pkey, app_outbox_claim_pkey, app_outbox_hold_outbox_id_idx, app_outbox_suspect_pkey
-- (the latter two only where any key is held, any row suspect).
-- A row that held its key releases it; where somebody has that hold locked, check_holds.sql does it later.
-- The state is checked in a case, which the planner does not estimate by statistics: those of a moment
-- when nothing was in flight promise so few rows that it walks the whole table for each batch.
with settled as (
    update :"schema".app_outbox as o
    set
        status = 'SENT',
        sent_partition = ack.partition_number,
        sent_offset = ack.record_offset,
        sent_topic = case
            when cardinality(:'routed_topics'::text []) > 0 then (
                select routed.topic
                from unnest(:'routed_destinations'::text [], :'routed_topics'::text []) as routed (destination, topic)
                where routed.destination = o.destination
            )
        end,
        locked_by = null,
        locked_at = null,
        sent_at = now(),
        updated_at = now()
    from
        unnest(
            :'outbox_ids'::bigint [], :'claim_numbers'::integer [], :'partitions'::integer [], :'offsets'::bigint []
        ) as ack (outbox_id, claim_number, partition_number, record_offset)
    where
        o.outbox_id = ack.outbox_id
        and o.claim_id = (:'claim_ids'::uuid [])[ack.claim_number]
        and case when o.status in ('PROCESSING', 'PENDING') then true else false end
    returning o.outbox_id, o.destination
),

counted as (
    insert into :"schema".app_outbox_counter (destination, status, delta)
    select
        settled.destination,
        'SENT',
        count(*)
    from settled
    group by settled.destination
),

released as (
    update :"schema".app_outbox_hold
    set released_at = now()
    where
        ctid = any(
            array(
                select h.ctid
                from :"schema".app_outbox_hold as h
                where
                    (select exists(select from :"schema".app_outbox_hold))
                    and h.outbox_id = any(array(select settled.outbox_id from settled))
                    and h.released_at is null
                for update of h skip locked
            )
        )
),

cleared as (
    delete from :"schema".app_outbox_suspect as s
    where
        (select exists(select from :"schema".app_outbox_suspect))
        and s.outbox_id = any(array(select settled.outbox_id from settled))
),

closed as (
    delete from :"schema".app_outbox_claim
    where claim_id = any(:'finished_claims'::uuid [])
)

select count(*) from settled
