-- Lists the replication slots of the cluster, and how much WAL (bytes) each keeps from being removed.
-- Locks: nothing.
select
    s.slot_name::text as slot_name,
    s.slot_type,
    s.active,
    coalesce(s.wal_status, '') as wal_status,
    coalesce(
        pg_wal_lsn_diff(
            case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
            s.restart_lsn
        ),
        0
    )::float8 as kept_bytes,
    greatest(coalesce(age(s.xmin), 0), coalesce(age(s.catalog_xmin), 0)) as kept_transactions
from pg_catalog.pg_replication_slots as s
where not s.temporary
order by s.slot_name
