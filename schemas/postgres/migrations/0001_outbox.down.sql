-- Takes the outbox and everything beside it away, rows included.
drop table :"schema".app_outbox_audit;
drop table :"schema".app_outbox_control;
drop table :"schema".app_outbox_lane;
drop table :"schema".app_outbox_relay;
drop table :"schema".app_outbox_claim;
drop table :"schema".app_outbox_counter;
drop table :"schema".app_outbox_failed;
drop table :"schema".app_outbox_queue;
drop table :"schema".app_outbox;
drop function :"schema".app_outbox_after_insert();
drop function :"schema".app_outbox_after_insert_settled();
drop function :"schema".app_outbox_after_update();
drop function :"schema".app_outbox_after_delete();
drop function :"schema".app_outbox_after_truncate();
drop function :"schema".app_outbox_audit_refuse();
drop function :"schema".app_outbox_refuse_content();
