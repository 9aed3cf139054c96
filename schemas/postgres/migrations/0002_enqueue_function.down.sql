drop function :"schema".outbox_enqueue(text, text, text, json, jsonb, text, timestamptz, text);
