-- Takes the buckets and the checks of the switches away; switches and audit entries stay.
drop trigger app_outbox_control_truncate on :"schema".app_outbox_control;
drop trigger app_outbox_control_audit on :"schema".app_outbox_control;
drop trigger app_outbox_control_stamp on :"schema".app_outbox_control;
drop function :"schema".app_outbox_control_truncate();
drop function :"schema".app_outbox_control_audit();
drop function :"schema".app_outbox_control_stamp();
drop function :"schema".app_outbox_is_quiet(text, timestamptz);
drop table :"schema".app_outbox_rate;
alter table :"schema".app_outbox_control drop column origins;
