-- Reads how many rows became SENT in each minute of the time before now, minutes without any left out.
-- A replay takes what it sends again off its minute, so a minute may be negative.
-- Locks: nothing. Index: none; the increments are few, since relays roll them up by minute.
select
    date_trunc('minute', c.counted_at) as minute,
    sum(c.delta)::bigint as rows_sent
from :"schema".app_outbox_counter as c
where
    c.status = 'SENT'
    and c.counted_at >= date_trunc('minute', now()) - :'minutes'::integer * interval '1 minute'
group by 1
order by 1
