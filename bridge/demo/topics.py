"""The demo's topics: created before anybody uses them, removed from brokers that are not ours."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PARTITIONS = 6
_READY_SECONDS = 30.0
_ANSWER_SECONDS = 15.0

_silent = logging.getLogger("bridge.demo.client")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@contextlib.contextmanager
def demo_topics(
    bootstrap_servers: str,
    names: Sequence[str],
    *,
    is_real: bool,
    remove: bool,
    config: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Create the topics and wait for their leaders; with `remove` delete them at the end.

    `config` holds settings of the topics; the mock cluster knows none.

    Raises KafkaError where they do not come to be.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=_silent)
    if is_real:
        topics = [
            NewTopic(name, num_partitions=_PARTITIONS, config=dict(config or {})) for name in names
        ]
        for future in admin.create_topics(topics, request_timeout=_ANSWER_SECONDS).values():
            # Brokers may refuse this and yet create a topic that is asked for, as the mock
            # cluster does, which knows no CreateTopics.
            with contextlib.suppress(KafkaException):
                future.result()
    for name in names:
        _await_leaders(admin, name)
    try:
        yield
    finally:
        if remove:
            answers = admin.delete_topics(list(names), request_timeout=_ANSWER_SECONDS)
            for future in answers.values():
                with contextlib.suppress(KafkaException):
                    future.result()


def _await_leaders(admin: AdminClient, name: str) -> None:
    until = time.monotonic() + _READY_SECONDS
    while True:
        reason = "it has no leader"
        try:
            found = admin.list_topics(name, timeout=10).topics[name]
        except KafkaException as error:
            reason = str(error.args[0].str())
        else:
            parts = found.partitions.values()
            if parts and all(part.error is None and part.leader >= 0 for part in parts):
                return
        if time.monotonic() > until:
            raise KafkaError(
                f"the topic {name} was not ready after {_READY_SECONDS:.0f} s: {reason}; "
                "create it, or allow the demo to create topics on these brokers"
            )
        time.sleep(0.05)
