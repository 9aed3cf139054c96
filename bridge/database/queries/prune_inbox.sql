-- Deletes the oldest keys of a consumer beyond their age, at most so many; returns how many were.
-- Locks: those rows; such as another session prunes are left to it. Index: app_inbox_received_at_idx,
-- walked from its old end; the delete goes by ctid.
with old as (
    select i.ctid
    from :"schema".app_inbox as i
    where i.consumer = :'consumer' and i.received_at < now() - make_interval(secs => :'seconds')
    order by i.received_at
    limit :'most'
    for update skip locked
),

pruned as (
    delete from :"schema".app_inbox as i
    where i.ctid = any(array(select old.ctid from old))
    returning 1 as one
)

select count(*) as pruned from pruned;
