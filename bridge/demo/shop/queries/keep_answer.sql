-- Stores the answer to a key's first request.
-- Locks: that row, which the transaction has locked already. Index: answer_pkey.
update answer set body = :'body'::json
where account = :'account' and idempotency_key = :'idempotency_key'
