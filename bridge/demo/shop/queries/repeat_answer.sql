-- Returns the fingerprint and the answer stored under a known key, and counts the request if it is the same one.
-- Locks: that row. Index: answer_pkey.
update answer set replays = replays + (fingerprint = :'fingerprint')::int
where account = :'account' and idempotency_key = :'idempotency_key'
returning fingerprint, body
