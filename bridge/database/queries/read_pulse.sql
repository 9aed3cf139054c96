-- Reads a few numbers that change whenever a page of the console would: newest row, entries of the side
-- tables (up to a limit), switches, relays, audit. Two equal answers: nothing to show anew.
-- Locks: nothing. Index: app_outbox_pkey, app_outbox_audit_pkey; the other tables are small or cut.
select
    (select max(o.outbox_id) from :"schema".app_outbox as o) as newest,
    (
        select count(*)
        from (select from :"schema".app_outbox_queue limit 10001) as entries
    ) as waiting,
    (select array_agg(c.claim_id order by c.claim_id) from :"schema".app_outbox_claim as c)::text as claims,
    (
        select count(*)
        from (select from :"schema".app_outbox_failed limit 10001) as entries
    ) as failed,
    (select max(f.failed_at) from (select l.failed_at from :"schema".app_outbox_failed as l limit 10001) as f)
        as failed_at,
    (select coalesce(sum(c.delta), 0)::bigint from :"schema".app_outbox_counter as c) as settled,
    (select count(*) from (select from :"schema".app_outbox_hold limit 10001) as entries) as held,
    (select max(c.changed_at) from :"schema".app_outbox_control as c) as switched_at,
    (
        select array_agg(r.relay_id || ':' || r.stopping::text order by r.relay_id)
        from :"schema".app_outbox_relay as r
    )::text as relays,
    (select max(a.audit_id) from :"schema".app_outbox_audit as a) as audited
