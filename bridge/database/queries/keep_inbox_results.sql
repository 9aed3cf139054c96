-- Keeps what handlers returned, beside the keys that the same transaction entered.
-- Locks: those rows, which no one else can see yet. Index: app_inbox_pkey.
update :"schema".app_inbox as i
set result_json = r.result_json
from unnest(:'message_keys'::text [], :'results'::json []) as r (message_key, result_json)
where i.consumer = :'consumer' and i.message_key = r.message_key;
