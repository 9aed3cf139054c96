-- From now on let an account's next charges be answered late, or those of one order alone.
-- Locks: that row. Index: fault_pkey.
insert into fault (account, seconds, times_left, only_order)
values (:'account', :'seconds'::double precision, :'times'::bigint, :'only_order')
on conflict (account) do update set seconds = excluded.seconds, times_left = excluded.times_left, only_order = excluded.only_order
