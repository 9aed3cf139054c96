-- Tells the server's settings of autovacuum.
-- Locks: nothing.
select
    current_setting('autovacuum')::boolean as is_on,
    current_setting('track_counts')::boolean as counts,
    current_setting('autovacuum_vacuum_threshold')::float8 as threshold,
    current_setting('autovacuum_vacuum_scale_factor')::float8 as scale_factor,
    current_setting('autovacuum_freeze_max_age')::float8 as freeze_age
