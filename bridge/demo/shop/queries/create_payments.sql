-- The payment service's own table. No unique order: a payment noted twice must be seen.
-- Locks: nothing that exists.
create table payment (
    payment_id bigint generated always as identity primary key,
    order_id text not null,
    charge_id text not null,
    amount_cents bigint not null,
    paid_at timestamptz not null default now()
)
