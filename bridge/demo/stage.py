"""Everything the demo needs around it: folder, servers, database, topics, child processes."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from psycopg import sql
from psycopg.conninfo import make_conninfo

from bridge.database.connection import connect
from bridge.database.reading import translated
from bridge.demo.child import Child
from bridge.demo.observer import Observer
from bridge.demo.orders import Destinations
from bridge.demo.relays import RelayProcess
from bridge.demo.topics import demo_topics
from bridge.local.parts import LocalParts, local_parts
from bridge.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.settings import Settings

_FETCH_WAIT_MS = 500
_MOCK_FETCH_WAIT_MS = 10
"""The mock cluster answers a fetch that found nothing only when its time is over; Kafka at once."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Stage:
    """What plays: two relays that are not started yet, and everybody else, ready."""

    parts: LocalParts
    folder: Path
    prefix: str
    """What the demo's destinations and topics begin with on brokers that are not ours."""
    database_url: str
    environment: dict[str, str]
    """What a process of the demo is started with."""
    observer: Observer
    shop: Child
    consumer: Child
    relays: tuple[RelayProcess, RelayProcess]


@contextlib.contextmanager
def build_stage(
    settings: Settings, *, keep: bool, progress: Callable[[str], None]
) -> Iterator[Stage]:
    """Start everything, and end all of it whatever happens; `keep` leaves the folder.

    Servers named by the settings are used instead of own ones: the demo then works in a database
    and in topics of its own there, and removes them.
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
        url = stack.enter_context(_database(parts, f"outbox_bridge_demo_{run}", keep=keep))
        prefix = "" if parts.kafka is not None else f"demo-{run}-"
        names = Destinations(orders=f"{prefix}orders", mails=f"{prefix}mails")
        topics = list(asdict(names).values())
        stack.enter_context(
            demo_topics(
                parts.bootstrap_servers,
                topics,
                is_real=parts.is_real,
                remove=parts.kafka is None and not keep,
            )
        )
        environment = child_environment(
            {
                "OUTBOX_BRIDGE_DATABASE_URL": url,
                "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": parts.bootstrap_servers,
            }
        )
        observer = stack.enter_context(Observer(url))
        observer.migrate()

        def relay(name: str) -> RelayProcess:
            return stack.enter_context(RelayProcess(name, folder=folder, environment=environment))

        def child(name: str, argument: Any) -> Child:
            log = folder / f"{name}.log"
            return stack.enter_context(
                Child(f"bridge.demo.{name}", argument, log=log, environment=environment)
            )

        yield Stage(
            parts=parts,
            folder=folder,
            prefix=prefix,
            database_url=url,
            environment=environment,
            observer=observer,
            shop=child("seller", asdict(names)),
            consumer=child(
                "consumer",
                {
                    "topics": topics,
                    "fetch_wait_ms": _FETCH_WAIT_MS if parts.is_real else _MOCK_FETCH_WAIT_MS,
                },
            ),
            relays=(relay("relay-1"), relay("relay-2")),
        )


@contextlib.contextmanager
def demo_folder(*, keep: bool) -> Iterator[Path]:
    """Make the folder for data and logs, and remove it at the end unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-bridge-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _database(parts: LocalParts, name: str, *, keep: bool) -> Iterator[str]:
    """Use our own server as it is; on somebody else's work in a database of our own."""
    if parts.postgres is not None:
        yield parts.database_url
        return
    database = sql.Identifier(name)
    with (
        connect(parts.database_url, stage="setup", relay_name="demo") as conn,
        translated("public"),
    ):
        conn.execute(sql.SQL("create database {}").format(database))
        try:
            yield make_conninfo(parts.database_url, dbname=name)
        finally:
            if not keep:
                conn.execute(sql.SQL("drop database if exists {} with (force)").format(database))


@contextlib.contextmanager
def signals_end_in_order() -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into KeyboardInterrupt and ignore later ones.

    So nothing interrupts the end of everything that was started.
    """

    def end(_number: int, _frame: object) -> NoReturn:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
