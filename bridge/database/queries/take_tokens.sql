-- Takes rows from the bucket of a rate limit: what time has put in, at most `burst`, less what is given.
-- Returns what is given (at most `wanted`, often less, 0 where nothing is left) and what stays.
-- A bucket that is missing is made, full. The transaction's time alone counts, so that nothing is lost
-- or counted twice where two relays ask at once; a clock that was set back stops it for a second at most.
-- Locks: the bucket's row; waits for another relay's request, at most lock_timeout.
-- Index: app_outbox_rate_pkey.
insert into :"schema".app_outbox_rate as r (destination, tokens, granted, refilled_at)
select
    :'destination'::text,
    :'burst'::float8 - least(:'wanted'::integer, floor(:'burst'::float8)::integer),
    least(:'wanted'::integer, floor(:'burst'::float8)::integer),
    now()
on conflict (destination) do update
    set (tokens, granted, refilled_at) = (
        select
            filled.tokens - least(:'wanted'::integer, floor(filled.tokens)::integer),
            least(:'wanted'::integer, floor(filled.tokens)::integer),
            greatest(now(), least(r.refilled_at, now() + interval '1 second'))
        from (
            select
                least(
                    :'burst'::float8,
                    r.tokens + greatest(0, extract(epoch from now() - r.refilled_at)::float8) * :'rate'::float8
                ) as tokens
        ) as filled
    )
returning granted, tokens
