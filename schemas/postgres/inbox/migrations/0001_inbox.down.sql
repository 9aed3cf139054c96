-- The keys go with it: every message that Kafka still holds would be processed again.
drop table :"schema".app_inbox;
