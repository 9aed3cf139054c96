-- Puts the list of FAILED rows right: adds those that are missing, takes off those that are not FAILED.
-- Returns how many entries were wrong.
-- Locks: the rows concerned, so that none changes its status meanwhile; waits for their holders.
-- Index: app_outbox_pkey, app_outbox_failed_pkey; reads the whole table once.
with missing as materialized (
    select
        o.outbox_id,
        o.destination,
        o.event_type,
        o.last_error_code,
        o.updated_at
    from :"schema".app_outbox as o
    where
        o.status = 'FAILED'
        and not exists (select from :"schema".app_outbox_failed as f where f.outbox_id = o.outbox_id)
    for update of o
),

wrong as materialized (
    select o.outbox_id
    from :"schema".app_outbox as o
    where
        o.outbox_id in (select f.outbox_id from :"schema".app_outbox_failed as f)
        and o.status <> 'FAILED'
    for update of o
),

taken_off as (
    delete from :"schema".app_outbox_failed as f
    where
        f.outbox_id in (select wrong.outbox_id from wrong)
        or not exists (select from :"schema".app_outbox as o where o.outbox_id = f.outbox_id)
    returning f.outbox_id
),

added as (
    insert into :"schema".app_outbox_failed (outbox_id, destination, event_type, error_code, failed_at)
    select
        missing.outbox_id,
        missing.destination,
        missing.event_type,
        missing.last_error_code,
        missing.updated_at
    from missing
    on conflict (outbox_id) do nothing
    returning outbox_id
)

select (select count(*) from taken_off) + (select count(*) from added) as relisted
