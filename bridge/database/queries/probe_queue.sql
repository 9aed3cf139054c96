-- Counts queue entries, up to a limit.
-- Locks: nothing. Index: none; reads so many entries of the narrow table.
select count(*)
from (
    select
    from :"schema".app_outbox_queue
    limit :'row_limit'::integer
) as entries
