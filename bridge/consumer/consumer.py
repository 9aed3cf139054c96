"""The consumer that users build: handlers on one side, Kafka and the inbox on the other."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bridge.consumer.database import Database
from bridge.consumer.dead_letters import DeadLetters
from bridge.consumer.handlers import Handlers, describe
from bridge.consumer.meters import Meters
from bridge.consumer.options import Options
from bridge.consumer.outcomes import RetryPolicy
from bridge.consumer.retention import check_retention, prune_forever
from bridge.consumer.runner import Runner
from bridge.consumer.watch import Watch
from bridge.consumer.work import Work
from bridge.consumer.worker import Rules
from bridge.database.connection import connect
from bridge.database.migration_sets import INBOX
from bridge.database.migrations import Migrator
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.consumer.inbox import Inbox

F = TypeVar("F", bound="Callable[..., Any]")

_log = logging.getLogger("bridge.consumer")

DEFAULT_MAX_RECORDS = 10_000
DEFAULT_MAX_BYTES = 64 * 1024 * 1024


class Consumer:
    """Consumes topics so that every message has its effect once.

    With an `inbox`, its row and the handler's work are one transaction of the consumer's own
    database; the offset is committed after it. Without one, handlers see messages at least once.

    Messages of one key are handled in order, at most `concurrency` keys at a time. `batch_size`
    above 1 lets so many messages share a transaction; `batch_wait` is how many seconds one may wait
    for company. A message whose handler raises is tried again by `retry` while other keys go on,
    then sent to `dead_letter_topic`; without that topic its key waits, and it is tried for ever.

    `handler_timeout` bounds one call, `drain_timeout` what is in hand when partitions are taken
    away or the consumer stops; both in seconds. `max_records` and `max_bytes` bound what is fetched
    and not done with. `static_member` is a name that this process keeps over restarts, which then
    cost the group no rebalance. `kafka` are further options of aiokafka (security, fetching).

    Spans `process {topic}` are linked to the context that came with a message, and with
    `trace_as_child` children of it. `sequence_header` names a header in which writers number the
    messages of each key: holes in it are counted as gaps.

    Raises ConfigurationError for what cannot work.
    """

    def __init__(
        self,
        *topics: str,
        group: str,
        bootstrap_servers: str = "localhost:9092",
        inbox: Inbox | None = None,
        concurrency: int = 8,
        batch_size: int = 1,
        batch_wait: float = 0.01,
        retry: RetryPolicy | None = None,
        dead_letter_topic: str | None = None,
        unhandled: Literal["skip", "dead-letter"] = "skip",
        handler_timeout: float | None = 60.0,
        lock_timeout: float = 5.0,
        drain_timeout: float = 10.0,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_poll_interval: float = 300.0,
        commit_interval: float = 0.2,
        static_member: str | None = None,
        client_id: str = "",
        kafka: Mapping[str, Any] | None = None,
        sequence_header: str | None = None,
        trace_as_child: bool = False,
    ) -> None:
        self._options = Options(
            topics=topics,
            group=group,
            bootstrap_servers=bootstrap_servers,
            client_id=client_id or f"outbox-bridge-{group}",
            static_member=static_member,
            concurrency=concurrency,
            max_records=max_records,
            max_bytes=max_bytes,
            commit_interval=commit_interval,
            drain_timeout=drain_timeout,
            max_poll_interval=max_poll_interval,
            kafka=kafka or {},
        )
        if batch_size < 1 or batch_wait < 0:
            raise ConfigurationError("batch_size must be at least 1, batch_wait not negative")
        if unhandled == "dead-letter" and dead_letter_topic is None:
            raise ConfigurationError('unhandled="dead-letter" needs a dead_letter_topic')
        self._inbox = inbox.named(group) if inbox is not None else None
        self._batch = (batch_size, batch_wait if batch_size > 1 else 0.0)
        self._retry = retry or RetryPolicy()
        self._dead_letter_topic = dead_letter_topic
        self._dead_letter_unhandled = unhandled == "dead-letter"
        self._handler_timeout = handler_timeout
        self._lock_timeout = lock_timeout
        self._trace_as_child = trace_as_child
        self._handlers = Handlers()
        self._watch = Watch(sequence_header)
        self._meters: Meters | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._runner: Runner | None = None
        self._rebalances = 0
        self._is_stopping = False

    @property
    def counts(self) -> dict[str, int]:
        """What was counted so far: the last part of the metrics' names, over all topics."""
        found: Counter[str] = Counter()
        for count, total in self._watch.counts.items():
            found[count.name.removeprefix("outbox_bridge.consumer.")] += total
        return dict(found)

    @property
    def committed(self) -> dict[tuple[str, int], int]:
        """The offsets that this process committed last, by topic and partition."""
        partitions = self._runner.partitions if self._runner is not None else []
        return {
            (one.tp.topic, one.tp.partition): one.committed
            for one in partitions
            if one.committed is not None
        }

    @property
    def is_ready(self) -> bool:
        """Whether it runs and has been given its share of the partitions."""
        return self._runner is not None and self._runner.is_ready

    @property
    def is_handing_over(self) -> bool:
        """Whether partitions are being taken away, or it stops, and handlers are awaited."""
        return self._runner is not None and self._runner.is_handing_over

    @property
    def rebalances(self) -> int:
        """How often this run was given partitions; 1 without any change in the group."""
        return self._rebalances if self._runner is None else self._runner.rebalances

    def on(
        self, event_type: str, *, payload_type: Any = None, transaction: bool = True
    ) -> Callable[[F], F]:
        """Register a handler for an event type, or a shell-style pattern of them ("*").

        The function, async or not, takes the payload first, in the shape of its annotation (dict,
        bytes, a dataclass, a pydantic model; `payload_type` where it has none), and by name, where
        it wants them, `conn`, a psycopg connection with the open transaction (an AsyncConnection
        for an async one), and `message`, a Received. What it returns is kept in the inbox as JSON.

        `transaction` False is for work that is not in this database and idempotent by itself: the
        inbox is looked at first, and entered afterwards.
        """

        def register(function: F) -> F:
            handler = describe(
                function, many=False, transaction=transaction, payload_type=payload_type
            )
            self._handlers.add(event_type, handler)
            return function

        return register

    def on_many(self, event_type: str, *, payload_type: Any = None) -> Callable[[F], F]:
        """Register a handler that takes a list of payloads, for `batch_size` above 1.

        It gets the messages of a batch that are new, those of one key in order; by name `conn` and
        `messages`. Where it raises, the batch is rolled back and each message tried alone.
        """

        def register(function: F) -> F:
            handler = describe(function, many=True, transaction=True, payload_type=payload_type)
            self._handlers.add(event_type, handler)
            return function

        return register

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have something called when the consumer has stopped, such as a client's close."""
        self._closers.append(close)

    def run(self) -> None:
        """Consume until SIGTERM or SIGINT; a second one does not wait for handlers."""
        asyncio.run(self._run_with_signals())

    async def serve(self) -> None:
        """Consume until `stop` is called: for processes with an event loop of their own.

        Raises SchemaError, DatabaseError or KafkaError where it cannot start or go on.
        """
        if not self._handlers:
            raise ConfigurationError("the consumer has no handlers; register one with @consumer.on")
        if self._runner is not None:
            raise ConfigurationError("the consumer is running already")
        database = await self._open_inbox()
        dead_letters = None
        if self._dead_letter_topic is not None:
            dead_letters = DeadLetters(
                self._dead_letter_topic, self._options.group, self._options.client_options()
            )
        rules = Rules(
            handlers=self._handlers,
            retry=self._retry,
            # Long enough that a worker is not busy waiting for a frozen process most of the time.
            locked=RetryPolicy(base=self._lock_timeout / 4, cap=self._lock_timeout * 3),
            dead_letters=dead_letters,
            dead_letter_unhandled=self._dead_letter_unhandled,
            batch=self._batch[0],
            linger=self._batch[1],
        )

        def new_work() -> Work:
            return Work(self._inbox, database, self._handler_timeout)

        duties: list[Callable[[], Awaitable[None]]] = []
        if database is not None and self._inbox is not None:
            await check_retention(self._options, self._inbox)
            duties.append(partial(prune_forever, database, self._inbox))
        self._meters = self._meters or Meters(self._watch, self._options.group)
        self._runner = Runner(
            self._options,
            rules,
            self._watch,
            self._meters,
            new_work,
            as_child=self._trace_as_child,
            duties=duties,
        )
        if self._is_stopping:
            self._runner.stop()
        try:
            await self._runner.run()
        finally:
            self._rebalances = self._runner.rebalances
            self._runner = None
            self._is_stopping = False
            for close in self._closers:
                await close()

    def stop(self) -> None:
        """Take nothing more in, finish what is in hand, commit, leave the group. From the loop."""
        self._is_stopping = True
        if self._runner is not None:
            self._runner.stop()

    async def _open_inbox(self) -> Database | None:
        inbox = self._inbox
        if inbox is None:
            return None

        def check() -> None:
            with connect(
                inbox.database_url, stage="consumer", relay_name=self._options.group
            ) as conn:
                Migrator(conn, inbox.schema, chosen=INBOX).check_compatible()

        await asyncio.to_thread(check)
        return Database(
            inbox,
            name=self._options.group,
            lock_timeout=self._lock_timeout,
            handler_timeout=self._handler_timeout,
        )

    async def _run_with_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def interrupted() -> None:
            if self._is_stopping and self._runner is not None:
                self._runner.force()
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, interrupted)
        try:
            await self.serve()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
