"""Records that cannot be handled, in a topic of their own: why, from where, for whom."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from bridge.message import (
    DEAD_LETTER_HEADERS,
    HEADER_DEAD_LETTER_ATTEMPTS,
    HEADER_DEAD_LETTER_CODE,
    HEADER_DEAD_LETTER_FAILED_AT,
    HEADER_DEAD_LETTER_REASON,
    HEADER_DEAD_LETTER_TOPIC,
    MAX_ERROR_MESSAGE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER_DEAD_LETTER_CONSUMER = "dead-letter-consumer"
HEADER_DEAD_LETTER_PARTITION = "dead-letter-partition"
HEADER_DEAD_LETTER_OFFSET = "dead-letter-offset"
_OWN = DEAD_LETTER_HEADERS | {
    HEADER_DEAD_LETTER_CONSUMER,
    HEADER_DEAD_LETTER_PARTITION,
    HEADER_DEAD_LETTER_OFFSET,
}


def dead_letter_headers(
    record: Any, *, code: str, reason: str, consumer: str, attempts: int, failed_at: datetime
) -> list[tuple[str, bytes]]:
    """Return the record's own headers, untouched, then those that say why it is a dead letter.

    Headers that an earlier dead letter left give way. `failed_at` must know its time zone.
    """
    headers = [
        (name, b"" if value is None else value)
        for name, value in record.headers
        if name.lower() not in _OWN
    ]
    reasons = {
        HEADER_DEAD_LETTER_CODE: code,
        HEADER_DEAD_LETTER_REASON: reason[:MAX_ERROR_MESSAGE],
        HEADER_DEAD_LETTER_TOPIC: record.topic,
        HEADER_DEAD_LETTER_PARTITION: str(record.partition),
        HEADER_DEAD_LETTER_OFFSET: str(record.offset),
        HEADER_DEAD_LETTER_CONSUMER: consumer,
        HEADER_DEAD_LETTER_ATTEMPTS: str(attempts),
        HEADER_DEAD_LETTER_FAILED_AT: failed_at.astimezone(UTC).isoformat(),
    }
    # A reason may quote what is no text (lone surrogates of a handler's own).
    headers += [(name, text.encode(errors="replace")) for name, text in reasons.items()]
    return headers


class DeadLetters:
    """Sends dead letters; its producer starts with the first."""

    def __init__(self, topic: str, consumer: str, options: Mapping[str, Any]) -> None:
        self.topic = topic
        self._consumer = consumer
        self._options = options
        self._producer: AIOKafkaProducer | None = None
        self._lock = asyncio.Lock()

    async def send(self, record: Any, *, code: str, reason: str, attempts: int) -> None:
        """Send one and wait for the acknowledgement of all in-sync replicas.

        Key and payload are unchanged. Raises aiokafka's KafkaError.
        """
        producer = await self._started()
        headers = dead_letter_headers(
            record,
            code=code,
            reason=reason,
            consumer=self._consumer,
            attempts=attempts,
            failed_at=datetime.now(UTC),
        )
        await producer.send_and_wait(
            self.topic, value=record.value, key=record.key, headers=headers
        )

    async def close(self) -> None:
        """Stop the producer; nothing is under way any more."""
        async with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _started(self) -> AIOKafkaProducer:
        async with self._lock:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **self._options,
                    acks="all",
                    enable_idempotence=True,
                    max_request_size=_MAX_REQUEST,
                )
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer


_MAX_REQUEST = 128 * 1024 * 1024
"""The topic's own limit decides, not aiokafka's default of 1 MiB."""
