"""A consumer's metrics, by OpenTelemetry's API: without an SDK in the process they go nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from bridge.telemetry import names
from bridge.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.consumer.watch import Count, Watch

_COUNTERS = {
    names.CONSUMED_MESSAGES: "Records that came from Kafka.",
    names.CONSUMER_PROCESSED: "Messages whose handler did its work, for the first time.",
    names.CONSUMER_DUPLICATES: "Messages that the inbox knew.",
    names.CONSUMER_CONFLICTS: "Messages whose key stands for other content in the inbox.",
    names.CONSUMER_UNHANDLED: "Messages of types that no handler wants.",
    names.CONSUMER_RETRIES: "Failed tries.",
    names.CONSUMER_DEAD_LETTERS: "Messages sent to the dead-letter topic.",
    names.CONSUMER_BLOCKED: "Tries after which a key is held up for want of a dead-letter topic.",
    names.CONSUMER_REORDERINGS: "New messages behind newer ones of their key.",
    names.CONSUMER_GAPS: "Messages known to be missing.",
}

Place = tuple[str, int]
"""Topic and partition."""


class Meters:
    """Passes a watch's counts on now and then, and says lag and pending when asked."""

    def __init__(self, watch: Watch, group: str) -> None:
        self._watch = watch
        self._group = group
        self._told: dict[Count, int] = {}
        self._places: dict[Place, tuple[int | None, int]] = {}
        meter = metrics.get_meter(names.CONSUMER_METER, __version__, schema_url=names.SCHEMA_URL)
        self._counters = {
            name: meter.create_counter(name, unit="{message}", description=meaning)
            for name, meaning in _COUNTERS.items()
        }
        self._duration = meter.create_histogram(
            names.PROCESS_DURATION, unit="s", description="One message, or one batch."
        )
        meter.create_observable_gauge(
            names.CONSUMER_LAG,
            callbacks=[self._observe_lag],
            unit="{message}",
            description="Records of a partition that are not done with.",
        )
        meter.create_observable_gauge(
            names.CONSUMER_PENDING,
            callbacks=[self._observe_pending],
            unit="{message}",
            description="Records fetched and not done with.",
        )

    def took(self, topic: str, seconds: float, error_type: str | None) -> None:
        """Record how long a message, or a batch, took."""
        attributes = self._attributes(topic)
        attributes[names.MESSAGING_OPERATION_NAME] = names.PROCESS
        if error_type is not None:
            attributes[names.ERROR_TYPE] = error_type
        self._duration.record(seconds, attributes)

    def flush(self) -> None:
        """Pass on what was counted since the last time."""
        for count, total in list(self._watch.counts.items()):
            new = total - self._told.get(count, 0)
            if not new:
                continue
            self._told[count] = total
            attributes = self._attributes(count.topic)
            if count.attribute:
                attributes[count.attribute] = count.value
            if count.name == names.CONSUMED_MESSAGES:
                attributes[names.MESSAGING_OPERATION_NAME] = names.POLL
            self._counters[count.name].add(new, attributes)

    def show(self, places: dict[Place, tuple[int | None, int]]) -> None:
        """Say lag (None: not known yet) and pending records by partition, until the next time."""
        self._places = places

    # Called by the SDK, in a thread of its own: `_places` is replaced, never changed.

    def _observe_lag(self, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002
        for (topic, partition), (lag, _) in self._places.items():
            if lag is not None:
                yield Observation(lag, self._at(topic, partition))

    def _observe_pending(self, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002
        for (topic, partition), (_, pending) in self._places.items():
            yield Observation(pending, self._at(topic, partition))

    def _at(self, topic: str, partition: int) -> dict[str, str | bool]:
        return {
            **self._attributes(topic),
            names.MESSAGING_DESTINATION_PARTITION_ID: str(partition),
        }

    def _attributes(self, topic: str) -> dict[str, str | bool]:
        return {
            names.MESSAGING_SYSTEM: names.KAFKA,
            names.MESSAGING_DESTINATION_NAME: topic,
            names.MESSAGING_CONSUMER_GROUP_NAME: self._group,
        }
