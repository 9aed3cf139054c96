"""The inbox: which messages have had their effect in the consumer's own database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import orjson

from bridge.consumer.received import Received, content_hash, hash_content
from bridge.database.migration_script import check_schema_name
from bridge.database.statements import load
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

ShortRetention = Literal["warn", "refuse", "ignore"]
DEFAULT_RETENTION = 14 * 86400.0
MAX_CONSUMER = 100

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the inbox knows of a key.

    `is_new`: the caller has to do the work, in this transaction. Else `result` is what was kept of
    the first time, and `differs` tells whether the content was another one then.
    """

    is_new: bool
    differs: bool = False
    result: Any = None


@dataclass(frozen=True)
class Inbox:
    """Where and how long a consumer keeps the keys of messages that it has processed.

    `database_url` is a libpq connection string or URL; None leaves everything to libpq's `PG*`
    variables. `consumer` tells consumers of one database apart (default: the Kafka group).
    `retention` is in seconds, None keeps keys for ever; it must be longer than Kafka keeps records,
    and `short_retention` says what happens at start where it is not. `prune_interval`: seconds.
    """

    database_url: str | None = None
    schema: str = "public"
    consumer: str = ""
    retention: float | None = DEFAULT_RETENTION
    short_retention: ShortRetention = "warn"
    prune_interval: float = 60.0

    def __post_init__(self) -> None:
        check_schema_name(self.schema)
        if len(self.consumer) > MAX_CONSUMER or "\0" in self.consumer:
            raise ConfigurationError(
                f"the inbox's consumer name {self.consumer[:40]!r} must be at most {MAX_CONSUMER} "
                "characters; say Inbox(consumer=…) where the Kafka group's name is longer"
            )
        if self.retention is not None and self.retention <= 0:
            raise ConfigurationError(
                f"inbox retention is {self.retention:g} s; it must be longer than Kafka keeps "
                "records, or None to keep keys for ever"
            )

    def __repr__(self) -> str:
        return f"Inbox(schema={self.schema!r}, consumer={self.consumer!r})"  # never the URL

    def named(self, group: str) -> Inbox:
        """Return the inbox with the group's name where it has none of its own."""
        return self if self.consumer else replace(self, consumer=group)

    # For code that brings its own loop or is called over HTTP: inside the caller's transaction.

    def receive(
        self,
        conn: psycopg.Connection[Any],
        *,
        message_key: str,
        event_type: str = "",
        payload: bytes | None = None,
    ) -> Receipt:
        """Keep a key in the caller's open transaction, or tell what is known of it."""
        entry = self.entry(message_key, event_type, payload)
        for _ in range(_ATTEMPTS):
            if conn.execute(self.statement("enter_inbox"), entry).fetchone():
                return Receipt(is_new=True)
            look = {"consumer": entry["consumer"], "message_keys": [message_key]}
            row = conn.execute(self.statement("find_inbox"), look).fetchone()
            if row is not None:
                return receipt_of(row, entry["content_hash"])
        raise vanished(message_key)

    async def receive_async(
        self,
        conn: psycopg.AsyncConnection[Any],
        *,
        message_key: str,
        event_type: str = "",
        payload: bytes | None = None,
    ) -> Receipt:
        """Do what `receive` does, on an asynchronous connection."""
        entry = self.entry(message_key, event_type, payload)
        for _ in range(_ATTEMPTS):
            cursor = await conn.execute(self.statement("enter_inbox"), entry)
            if await cursor.fetchone():
                return Receipt(is_new=True)
            look = {"consumer": entry["consumer"], "message_keys": [message_key]}
            cursor = await conn.execute(self.statement("find_inbox"), look)
            row = await cursor.fetchone()
            if row is not None:
                return receipt_of(row, entry["content_hash"])
        raise vanished(message_key)

    def keep_result(self, conn: psycopg.Connection[Any], message_key: str, result: Any) -> None:
        """Keep a JSON value beside a key that `receive` has just taken as new."""
        conn.execute(self.statement("keep_inbox_results"), self.results([message_key], [result]))

    async def keep_result_async(
        self, conn: psycopg.AsyncConnection[Any], message_key: str, result: Any
    ) -> None:
        """Do what `keep_result` does, on an asynchronous connection."""
        statement = self.statement("keep_inbox_results")
        await conn.execute(statement, self.results([message_key], [result]))

    # Parameters of the statements.

    def statement(self, name: str) -> bytes:
        """Return one of the inbox's statements."""
        return load(name, self.schema)

    def entry(self, message_key: str, event_type: str, payload: bytes | None) -> dict[str, Any]:
        """Return the parameters of `enter_inbox` for what did not come by Kafka."""
        return {
            "consumer": self.consumer,
            "message_key": message_key,
            "content_hash": hash_content(event_type, payload),
            "event_type": event_type,
            "outbox_id": None,
            "topic": "",
            "partition_number": -1,
            "record_offset": -1,
        }

    def entry_of(self, received: Received) -> dict[str, Any]:
        """Return the parameters of `enter_inbox` for a record."""
        return {
            "consumer": self.consumer,
            "message_key": received.message_key,
            "content_hash": content_hash(received),
            "event_type": received.event_type,
            "outbox_id": received.outbox_id,
            "topic": received.topic,
            "partition_number": received.partition,
            "record_offset": received.offset,
        }

    def entries_of(self, entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Return the parameters of `enter_inbox_many`."""
        columns = list(entries)
        return {
            "consumer": self.consumer,
            "message_keys": [one["message_key"] for one in columns],
            "content_hashes": [one["content_hash"] for one in columns],
            "event_types": [one["event_type"] for one in columns],
            "outbox_ids": [one["outbox_id"] for one in columns],
            "topics": [one["topic"] for one in columns],
            "partition_numbers": [one["partition_number"] for one in columns],
            "record_offsets": [one["record_offset"] for one in columns],
        }

    def results(self, keys: list[str], results: list[Any]) -> dict[str, Any]:
        """Return the parameters of `keep_inbox_results`; raises TypeError for what is no JSON."""
        texts = [orjson.dumps(one).decode() for one in results]
        return {"consumer": self.consumer, "message_keys": keys, "results": texts}


_ATTEMPTS = 3


class VanishedError(Exception):
    """A key was known, and gone before it could be looked at: pruned meanwhile."""


def receipt_of(row: Row, wanted_hash: bytes) -> Receipt:
    """Return what a row of `find_inbox` says about content of this hash."""
    return Receipt(is_new=False, differs=bytes(row[1]) != wanted_hash, result=row[2])


def vanished(message_key: str) -> VanishedError:
    """Return the error of a row that others delete as fast as it is found."""
    return VanishedError(
        f"the inbox row of {message_key!r} vanished {_ATTEMPTS} times (deleted by another session)"
    )
