-- Counts SENT and CANCELLED rows anew and lists FAILED rows anew; reads the whole table once.
-- Locks: the counter and the failed table against writers (the caller locks both), so that the
-- counts and the changes that triggers make meanwhile do not mix.
with cleared as (
    delete from :"schema".app_outbox_counter
),

counted as (
    insert into :"schema".app_outbox_counter (destination, status, delta)
    select
        o.destination,
        o.status,
        count(*)
    from :"schema".app_outbox as o
    where o.status in ('SENT', 'CANCELLED')
    group by o.destination, o.status
),

unlisted as (
    delete from :"schema".app_outbox_failed as f
    where not exists (
        select
        from :"schema".app_outbox as o
        where o.outbox_id = f.outbox_id and o.status = 'FAILED'
    )
)

insert into :"schema".app_outbox_failed (outbox_id, destination, event_type, error_code, failed_at)
select
    o.outbox_id,
    o.destination,
    o.event_type,
    o.last_error_code,
    o.updated_at
from :"schema".app_outbox as o
where o.status = 'FAILED'
on conflict (outbox_id) do nothing
