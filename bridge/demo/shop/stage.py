"""Everything the shop needs: servers, a database for each service, topics, processes."""

from __future__ import annotations

import contextlib
import sys
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy.orm import Session

from bridge.database.connection import connect
from bridge.database.migration_sets import INBOX, OUTBOX
from bridge.database.migrations import Migrator
from bridge.database.reading import translated
from bridge.demo.shop.books import Books, Urls
from bridge.demo.shop.customers import ITEMS, SOLD_OUT, Customers
from bridge.demo.shop.members import Company, Member
from bridge.demo.shop.order_service import open_engine
from bridge.demo.shop.serving import HEALTH_PATH
from bridge.demo.shop.shop_tables import Stock, Table
from bridge.demo.shop.statements import statement
from bridge.demo.shop.trace_collector import TraceCollector
from bridge.demo.stage import demo_folder
from bridge.demo.topics import demo_topics
from bridge.local.parts import LocalParts, local_parts
from bridge.local.ports import LOOPBACK, free_ports
from bridge.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from bridge.database.migration_sets import MigrationSet
    from bridge.settings import Settings

ORDERS, PAYMENTS = "orders", "payments"
API_SECONDS = 1.0
"""How long the shop waits for the payment API."""
_PLENTY = 1_000_000


@dataclass(frozen=True, slots=True)
class ShopStage:
    """What plays. Nobody is started yet; `orders` and `payments` are the topics' names."""

    parts: LocalParts
    folder: Path
    orders: str
    payments: str
    company: Company
    customers: Customers
    books: Books
    shop_url: str = field(repr=False)
    collector: TraceCollector


@contextlib.contextmanager
def build_shop(
    settings: Settings, *, keep: bool, progress: Callable[[str], None]
) -> Iterator[ShopStage]:
    """Start the servers, prepare everything, and end all of it whatever happens.

    `keep` leaves the folder, and the databases and topics on servers that the settings name.
    """
    local = settings.local
    run = uuid.uuid4().hex[:8]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(demo_folder(keep=keep))
        if keep:
            progress(f"data and logs go to {folder}")
        given = local.database_url
        parts = stack.enter_context(
            local_parts(
                kafka=local.kafka,
                data=folder if keep else None,
                database_url=given.get_secret_value() if given is not None else None,
                bootstrap_servers=local.bootstrap_servers,
                progress=progress,
            )
        )
        urls = stack.enter_context(_databases(parts, run, keep=keep))
        prefix = "" if parts.kafka is not None else f"demo-{run}-"
        orders, payments = f"{prefix}{ORDERS}", f"{prefix}{PAYMENTS}"
        stack.enter_context(
            demo_topics(
                parts.bootstrap_servers,
                [orders, payments],
                is_real=parts.is_real,
                remove=parts.kafka is None and not keep,
            )
        )
        _create_tables(urls)
        collector = stack.enter_context(TraceCollector())
        order_port, api_port = free_ports(2)
        company = stack.enter_context(
            Company(
                _members(
                    folder,
                    urls,
                    bootstrap_servers=parts.bootstrap_servers,
                    topics=(orders, payments),
                    ports=(order_port, api_port),
                    endpoint=collector.endpoint,
                ),
                parts,
            )
        )
        customers = Customers(f"http://{LOOPBACK}:{order_port}")
        stack.callback(customers.leave)
        books = Books(urls)
        stack.callback(books.close)
        yield ShopStage(
            parts=parts,
            folder=folder,
            orders=orders,
            payments=payments,
            company=company,
            customers=customers,
            books=books,
            shop_url=urls.shop,
            collector=collector,
        )


@contextlib.contextmanager
def _databases(parts: LocalParts, run: str, *, keep: bool) -> Iterator[Urls]:
    """Create a database for each service; on a server of somebody else's drop them at the end."""
    is_own = parts.postgres is not None
    names = {
        name: name if is_own else f"outbox_bridge_demo_{run}_{name}"
        for name in ("shop", "payments", "notifications", "payment_api")
    }
    with contextlib.ExitStack() as stack:
        with (
            connect(parts.database_url, stage="setup", relay_name="demo") as conn,
            translated("public"),
        ):
            for name in names.values():
                conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
                if not is_own and not keep:
                    stack.callback(_drop, parts.database_url, name)
        yield Urls(
            **{
                name: make_conninfo(parts.database_url, dbname=database)
                for name, database in names.items()
            }
        )


def _drop(url: str, name: str) -> None:
    with connect(url, stage="setup", relay_name="demo") as conn, translated("public"):
        database = sql.Identifier(name)
        conn.execute(sql.SQL("drop database if exists {} with (force)").format(database))


def _create_tables(urls: Urls) -> None:
    _prepare(urls.shop, OUTBOX)
    _prepare(urls.payments, OUTBOX, INBOX, tables="create_payments")
    _prepare(urls.notifications, INBOX, tables="create_notifications")
    _prepare(urls.payment_api, tables="create_charges")
    engine = open_engine(urls.shop)
    Table.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(Stock(item=item, left=_PLENTY) for item in ITEMS)
        session.add(Stock(item=SOLD_OUT, left=0))
    engine.dispose()


def _prepare(url: str, *sets: MigrationSet, tables: str | None = None) -> None:
    with connect(url, stage="setup", relay_name="demo") as conn:
        for one in sets:
            Migrator(conn, chosen=one).up()
        if tables is not None:
            conn.execute(statement(tables))


def _members(
    folder: Path,
    urls: Urls,
    *,
    bootstrap_servers: str,
    topics: tuple[str, str],
    ports: tuple[int, int],
    endpoint: str,
) -> list[Member]:
    """Return everybody, those first whom others call."""
    orders, payments = topics
    order_port, api_port = ports
    payment_api = f"http://{LOOPBACK}:{api_port}"

    def environment(name: str, url: str) -> dict[str, str]:
        return child_environment(
            {
                "OUTBOX_BRIDGE_DATABASE_URL": url,
                "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
                **_telemetry(name, endpoint),
            }
        )

    def service(name: str, url: str, told: Mapping[str, Any], port: int | None = None) -> Member:
        module = f"bridge.demo.shop.{name.replace('-', '_')}"
        return Member(
            name,
            [sys.executable, "-m", module, orjson.dumps(told).decode()],
            folder=folder,
            environment=environment(name, url),
            health=f"http://{LOOPBACK}:{port}{HEALTH_PATH}" if port else None,
        )

    def relay(name: str, url: str) -> Member:
        return Member(
            name,
            [sys.executable, "-m", "bridge", "relay", "--name", name],
            folder=folder,
            environment=environment(name, url),
        )

    calls = {"payment_api": payment_api, "api_seconds": API_SECONDS}
    return [
        service("payment-api", urls.payment_api, {"port": api_port}, api_port),
        service(
            "order-service",
            urls.shop,
            {"port": order_port, "destination": orders, **calls},
            order_port,
        ),
        service("payment-service", urls.payments, {"topic": orders, "to": payments, **calls}),
        service("notification-service", urls.notifications, {"topic": payments}),
        relay("relay-shop", urls.shop),
        relay("relay-payments", urls.payments),
    ]


def _telemetry(name: str, endpoint: str) -> dict[str, str]:
    """Return OpenTelemetry's own variables: they alone configure the children's traces."""
    return {
        "OTEL_SDK_DISABLED": "false",
        "OTEL_SERVICE_NAME": name,
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_TRACES_SAMPLER": "parentbased_always_on",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_PROPAGATORS": "tracecontext,baggage",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{endpoint}/v1/traces",
        # What a killed process had not reported yet is lost: report early.
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        # A proxy for the world outside does not know this machine's own addresses.
        "NO_PROXY": LOOPBACK,
        "no_proxy": LOOPBACK,
    }
