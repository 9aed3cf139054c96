-- The notification service's own table. No unique order: a customer told twice must be seen.
-- Locks: nothing that exists.
create table notification (
    notification_id bigint generated always as identity primary key,
    order_id text not null,
    customer text not null,
    told text not null,
    told_at timestamptz not null default now()
)
