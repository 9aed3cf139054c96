-- From now on let an account's next charges be answered late.
-- Locks: that row. Index: fault_pkey.
insert into fault (account, seconds, times_left)
values (:'account', :'seconds'::double precision, :'times'::bigint)
on conflict (account) do update set seconds = excluded.seconds, times_left = excluded.times_left
