"""The one place where a consumer's handling of messages is traced and timed."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bridge.telemetry.tracing import Processing, error_type, processing, processing_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bridge.consumer.meters import Meters
    from bridge.consumer.received import Received


class Spans:
    """Opens `process {topic}` around each try, and records how long it took.

    `as_child` makes the span a child of the context that came with the message; else it is linked.
    """

    def __init__(self, meters: Meters, *, group: str, client_id: str, as_child: bool) -> None:
        self._meters = meters
        self._group = group
        self._client_id = client_id
        self._as_child = as_child

    @contextmanager
    def one(self, received: Received) -> Iterator[Processing]:
        """Be around the handling of one message."""
        span = processing(
            received.headers,
            topic=received.topic,
            partition=received.partition,
            offset=received.offset,
            key=received.key,
            group=self._group,
            client_id=self._client_id,
            timestamp_ms=received.timestamp,
            is_tombstone=received.value is None,
            as_child=self._as_child,
        )
        with self._timed((received.topic,)), span:
            yield span

    @contextmanager
    def many(self, received: Sequence[Received]) -> Iterator[None]:
        """Be around the handling of a batch: one span for each topic in it."""
        by_topic: dict[str, list[Received]] = {}
        for one in received:
            by_topic.setdefault(one.topic, []).append(one)
        with ExitStack() as stack:
            stack.enter_context(self._timed(tuple(by_topic)))
            for topic, messages in by_topic.items():
                span = processing_batch(
                    (one.headers for one in messages),
                    topic=topic,
                    group=self._group,
                    client_id=self._client_id,
                )
                stack.enter_context(span)
            yield

    @contextmanager
    def _timed(self, topics: tuple[str, ...]) -> Iterator[None]:
        started = time.perf_counter()
        kind: str | None = None
        try:
            yield
        except BaseException as error:
            kind = error_type(error)
            raise
        finally:
            seconds = time.perf_counter() - started
            for topic in topics:
                self._meters.took(topic, seconds, kind)
