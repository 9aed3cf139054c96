-- Lists the destinations in use: rows wait or failed, or became SENT within a day; and how many are open.
-- Locks: nothing. Index: app_outbox_pkey; reads queue, claims, failed list and counters as a whole.
select
    used.destination,
    sum(used.open_rows)::bigint as open_rows
from (
    select
        d.destination,
        d.pending + d.processing + d.failed as open_rows,
        d.pending + d.processing + d.failed > 0 as is_used
    from :"schema".outbox_by_destination as d
    union all
    select
        c.destination,
        0,
        bool_or(c.delta > 0 and c.status = 'SENT' and c.counted_at > now() - interval '1 day')
    from :"schema".app_outbox_counter as c
    group by c.destination
) as used
where used.is_used
group by used.destination
order by used.destination
