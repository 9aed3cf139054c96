"""Keys must outlive records: the check at start, and the pruning of what is old enough."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import psycopg
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError as ClientError

from bridge.database.connection import first_line
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.consumer.database import Database
    from bridge.consumer.inbox import Inbox
    from bridge.consumer.options import Options

_log = logging.getLogger("bridge.consumer")

_ROWS = 1000
_RETENTION, _CLEANUP = "retention.ms", "cleanup.policy"


async def check_retention(options: Options, inbox: Inbox) -> None:
    """Compare how long keys are kept with how long the topics keep records.

    A record that outlives its key has its effect twice when it is read again: after a reset of the
    group's offsets, for example. Raises ConfigurationError where the inbox says `refuse`.
    """
    if inbox.short_retention == "ignore" or inbox.retention is None:
        return
    try:
        found = await _topic_settings(options)
    except (ClientError, OSError) as error:
        _log.warning("the topics' retention could not be looked at: %s", error)
        return
    for topic, settings in found.items():
        problem = retention_problem(topic, settings, inbox.retention)
        if problem is None:
            continue
        if inbox.short_retention == "refuse":
            raise ConfigurationError(problem)
        _log.warning(problem)


def retention_problem(topic: str, settings: Mapping[str, str], seconds: float) -> str | None:
    """Say why keys kept for so many seconds do not outlive a topic's records, or None."""
    days = seconds / 86400
    if "delete" not in settings.get(_CLEANUP, "delete"):
        kept = "keeps the last record of each key for ever (compaction)"
    else:
        milliseconds = int(settings.get(_RETENTION, "604800000"))
        if 0 <= milliseconds < seconds * 1000:
            return None
        kept = f"keeps records for {milliseconds / 86_400_000:g} days"
        if milliseconds < 0:
            kept = "keeps records for ever"
    return (
        f"the inbox keeps keys for {days:g} days, but topic {topic} {kept}: a record read again "
        "after its key was pruned would have its effect twice. Raise the inbox's retention above "
        "the topic's (Inbox(retention=…) in seconds, None for ever), or lower the topic's"
    )


async def _topic_settings(options: Options) -> dict[str, dict[str, str]]:
    admin = AIOKafkaAdminClient(**options.client_options())
    try:
        await admin.start()
        wanted = [
            ConfigResource(ConfigResourceType.TOPIC, topic, {_RETENTION: None, _CLEANUP: None})
            for topic in options.topics
        ]
        answers = await admin.describe_configs(wanted)
    finally:
        await admin.close()
    found: dict[str, dict[str, str]] = {}
    for answer in answers:
        for code, reason, _, topic, entries, *_ in answer.resources:
            if code:
                _log.warning("the retention of topic %s could not be looked at: %s", topic, reason)
                continue
            # A setting's first two fields are its name and its value, in every version.
            found[topic] = {entry[0]: entry[1] for entry in entries}
    return found


async def prune_forever(database: Database, inbox: Inbox) -> None:
    """Delete keys that are older than the inbox's retention, until cancelled."""
    if inbox.retention is None:
        return
    conn: psycopg.AsyncConnection[Any] | None = None
    try:
        while True:
            await asyncio.sleep(inbox.prune_interval)
            try:
                if conn is None or conn.closed:
                    conn = await database.open_async()
                pruned = await prune(conn, inbox)
                if pruned:
                    _log.info("pruned %d keys of the inbox", pruned)
            except psycopg.Error as error:
                _log.warning("the inbox could not be pruned: %s; tried again", first_line(error))
    finally:
        if conn is not None:
            await conn.close()


async def prune(conn: psycopg.AsyncConnection[Any], inbox: Inbox) -> int:
    """Delete what is too old, in steps of 1,000 rows, each its own transaction."""
    parameters = {"consumer": inbox.consumer, "seconds": inbox.retention, "most": _ROWS}
    total = 0
    while True:
        cursor = await conn.execute(inbox.statement("prune_inbox"), parameters)
        row = await cursor.fetchone()
        pruned = int(row[0]) if row is not None else 0
        total += pruned
        if pruned < _ROWS:
            return total
