-- Reads the server's clock: microseconds since 2000-01-01 UTC, as the binary timestamps count.
-- Locks: nothing.
select (extract(epoch from clock_timestamp() - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
