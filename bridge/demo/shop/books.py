"""What the demo reads from everybody's databases, to compare them: no service can do that."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg

from bridge.database.connection import connect
from bridge.demo.shop.statements import statement
from bridge.errors import DatabaseError
from bridge.lifecycle import Status
from bridge.operations import Actor, Selection, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_PATIENCE_SECONDS = 60.0
_AGAIN_SECONDS = 0.2
_REPLAYED_A_SECOND = 1000.0


class OutboxMessage(NamedTuple):
    """One row of an outbox; `trace_id` is empty where the writer was not traced."""

    message_key: str
    is_sent: bool
    trace_id: str | None


@dataclass(frozen=True, slots=True)
class Urls:
    """Everybody's database; none of them reads another's."""

    shop: str
    payments: str
    notifications: str
    payment_api: str


class Books:
    """Reads by connections that are opened anew when a server was restarted.

    `meanwhile` is called again and again while a server is away, so that somebody can start it.
    """

    def __init__(self, urls: Urls) -> None:
        self.meanwhile: Callable[[], None] = lambda: None
        self._urls = urls
        self._open: dict[str, psycopg.Connection[Any]] = {}

    def orders(self) -> list[tuple[str, str]]:
        """Return each accepted order's id and way."""
        return self._rows(self._urls.shop, "list_orders")

    def charges(self) -> list[tuple[str, str]]:
        """Return each charge's order and account."""
        return self._rows(self._urls.payment_api, "list_charges")

    def payments(self) -> list[str]:
        """Return the order of each payment that the payment service noted."""
        return [order for (order,) in self._rows(self._urls.payments, "list_payments")]

    def notifications(self) -> list[str]:
        """Return the order of each notification."""
        return [order for (order,) in self._rows(self._urls.notifications, "list_notifications")]

    def shop_messages(self) -> list[OutboxMessage]:
        """Return the rows of the shop's outbox, in their order."""
        return [OutboxMessage(*row) for row in self._rows(self._urls.shop, "list_messages")]

    def payment_messages(self) -> list[OutboxMessage]:
        """Return the rows of the payment service's outbox, in their order."""
        return [OutboxMessage(*row) for row in self._rows(self._urls.payments, "list_messages")]

    def replayed_answers(self) -> int:
        """Return how many requests the payment API answered from its memory."""
        return int(self._rows(self._urls.payment_api, "count_replays")[0][0])

    def set_fault(self, account: str, *, seconds: float, only_order: str | None = None) -> None:
        """Have the payment API charge and answer late, once: for this order, or for the next."""
        names = {"account": account, "seconds": seconds, "times": 1, "only_order": only_order}
        self._run(self._urls.payment_api, "set_fault", names)

    def fault(self, account: str) -> tuple[int, str | None]:
        """Return how many late answers are left, and the order of the latest one."""
        rows = self._rows(self._urls.payment_api, "find_fault", {"account": account})
        return rows[0] if rows else (0, None)

    def replay(self, count: int, *, key_pattern: str) -> int:
        """Have so many of the shop's SENT messages sent once more; return how many these are.

        An operator's audited action, as `outbox-bridge replay` is.
        """
        replay_id = str(uuid.uuid4())
        outcome = self._with(
            self._urls.shop,
            lambda conn: replay(
                conn,
                Selection(statuses=(Status.SENT,), key_pattern=key_pattern),
                reason="the demo sends some messages twice",
                actor=Actor("demo", source="demo"),
                # Begun again after a lost connection it leaves out what it has done.
                replay_id=replay_id,
                rows_per_second=_REPLAYED_A_SECOND,
                limit=count,
            ),
        )
        return outcome.changed

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        while self._open:
            self._open.popitem()[1].close()

    def _rows(self, url: str, name: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        return self._with(
            url, lambda conn: conn.execute(statement(name), parameters or {}).fetchall()
        )

    def _run(self, url: str, name: str, parameters: Mapping[str, Any]) -> int:
        return self._with(url, lambda conn: conn.execute(statement(name), parameters).rowcount)

    def _with(self, url: str, action: Callable[[psycopg.Connection[Any]], T]) -> T:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                conn = self._open.get(url)
                if conn is None:
                    conn = self._open[url] = connect(url, stage="books", relay_name="demo")
                return action(conn)
            except (psycopg.OperationalError, DatabaseError):
                lost = self._open.pop(url, None)
                if lost is not None:
                    lost.close()
                if time.monotonic() > until:
                    raise
                self.meanwhile()
                time.sleep(_AGAIN_SECONDS)
