-- Counts rows that hold up their key, up to a limit.
-- Locks: nothing. Index: none; the table holds what is held.
select count(*)
from (
    select
    from :"schema".app_outbox_hold as h
    where h.released_at is null
    limit :'row_limit'::integer
) as held
