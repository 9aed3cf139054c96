-- Takes an idempotency key that is new; returns nothing for a known one, after the other request that has it is through.
-- Locks: the key, until the end of the transaction. Index: answer_pkey.
insert into answer (account, idempotency_key, fingerprint)
values (:'account', :'idempotency_key', :'fingerprint')
on conflict do nothing
returning idempotency_key
