-- What is kept of the keys that a consumer has processed.
-- Locks nothing. Index: app_inbox_pkey.
select
    i.message_key,
    i.content_hash,
    i.result_json
from :"schema".app_inbox as i
where i.consumer = :'consumer' and i.message_key = any(:'message_keys'::text []);
