-- The tables of the demo's two applications: the shop's orders, and the consumer's keys and effects.
-- Locks: nothing that exists.
create table shop_order (
    order_id bigint primary key,
    status text not null,
    changed_at timestamptz not null default now()
);

create table warehouse_processed (
    message_key text primary key,
    processed_at timestamptz not null default now()
);

create table warehouse_effect (
    event_type text primary key,
    applied bigint not null
);
