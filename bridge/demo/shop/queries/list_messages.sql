-- Lists the messages of one outbox: key, whether it is SENT, and the trace that wrote it.
-- Locks: nothing. Index: none, it reads everything.
select
    message_key,
    status = 'SENT' as is_sent,
    split_part(headers ->> 'traceparent', '-', 2) as trace_id
from :"schema".app_outbox
order by outbox_id
