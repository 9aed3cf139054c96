drop view :"schema".outbox_throughput;
drop view :"schema".outbox_throughput_by_destination;
drop view :"schema".outbox_held_keys;
drop view :"schema".outbox_stuck;
drop view :"schema".outbox_breakers;
drop view :"schema".outbox_relays;
drop view :"schema".outbox_by_error;
drop view :"schema".outbox_near_retry_limit;
drop view :"schema".outbox_oldest_unsent;
drop view :"schema".outbox_by_status;
drop view :"schema".outbox_by_destination;
drop view :"schema".outbox_unsent;

alter table :"schema".app_outbox_relay drop column failing;
