-- The ledger of the inbox's migrations; `outbox-bridge migrate up --set inbox` runs it before the first file.
create table if not exists :"schema".app_inbox_migration (
    version integer primary key,
    name varchar(200) not null,
    checksum char(64) not null,
    applied_at timestamptz not null default now(),
    applied_by varchar(128) not null default session_user,
    tool_version varchar(50) not null
);

comment on table :"schema".app_inbox_migration is 'Migrations of the inbox applied to this schema, one row each.';
comment on column :"schema".app_inbox_migration.version is 'Number of the migration.';
comment on column :"schema".app_inbox_migration.name is 'Its name.';
comment on column :"schema".app_inbox_migration.checksum is 'SHA-256 of its up file; a file must not change after it was applied.';
comment on column :"schema".app_inbox_migration.applied_at is 'When it was applied: the start of its transaction.';
comment on column :"schema".app_inbox_migration.applied_by is 'Database role that applied it.';
comment on column :"schema".app_inbox_migration.tool_version is 'Version of outbox-bridge that it came from.';
