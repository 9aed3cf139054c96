-- The payment API's tables: what it charged, what it answered under which key, and the faults it was told to make.
-- Locks: nothing that exists.
create table charge (
    charge_id bigint generated always as identity primary key,
    account text not null,
    order_id text not null,
    amount_cents bigint not null,
    currency text not null,
    charged_at timestamptz not null default now()
);

create table answer (
    account text not null,
    idempotency_key text not null,
    fingerprint text not null,
    body json,
    replays bigint not null default 0,
    primary key (account, idempotency_key)
);

create table fault (
    account text primary key,
    seconds double precision not null,
    times_left bigint not null,
    only_order text,
    order_id text
);
