"""Where a row goes: destination to topic, and which of its keys becomes the record's key (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TOPIC = 249
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PATTERN_CHARACTERS = frozenset("*?[")


class KeyChoice(StrEnum):
    """Which column becomes the record's key."""

    AUTO = "auto"
    """`ordering_key` where the row has one, else `message_key`."""
    MESSAGE_KEY = "message_key"
    """Always `message_key` (compacted topics that keep one record per message)."""
    ORDERING_KEY = "ordering_key"
    """Always `ordering_key`; rows without one have no record key and are spread at random."""


class OnFailure(StrEnum):
    """What a failed row does to later rows of its ordering key."""

    BLOCK = "block"
    """They wait until it is sent, cancelled, deleted or skipped."""
    SKIP = "skip"
    """They go on without it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One route as configured: an exact destination or a shell-style pattern."""

    destination: str
    topic: str | None = None
    key: KeyChoice = KeyChoice.AUTO
    on_failure: OnFailure = OnFailure.BLOCK
    dead_letter: str | None = None

    @property
    def is_pattern(self) -> bool:
        """Tell whether the destination is a pattern (contains `*`, `?` or `[`)."""
        return not _PATTERN_CHARACTERS.isdisjoint(self.destination)


@dataclass(frozen=True, slots=True)
class Route:
    """Where one destination goes."""

    topic: str
    key: KeyChoice
    problem: str | None = None
    """Why no record can ever go there, or None."""
    on_failure: OnFailure = OnFailure.BLOCK
    dead_letter: str | None = None
    """Topic that gets the record of a row that ends FAILED, or None."""


class Router:
    """Maps destinations to routes: exact rules first, then patterns in order, else the name itself.

    Answers are remembered: a relay asks for each row.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._exact: dict[str, Rule] = {}
        self._patterns: list[tuple[re.Pattern[str], Rule]] = []
        for rule in rules:
            if rule.is_pattern:
                self._patterns.append((re.compile(translate(rule.destination)), rule))
            else:
                self._exact.setdefault(rule.destination, rule)
        self._known: dict[str, Route] = {}
        self._renamed: dict[str, str] = {}

    def route(self, destination: str) -> Route:
        """Return the route of a destination; a topic name that Kafka refuses is its `problem`."""
        known = self._known.get(destination)
        if known is None:
            rule = self._rule(destination)
            topic = rule.topic or destination
            known = Route(
                topic=topic,
                key=rule.key,
                problem=topic_problem(topic),
                dead_letter=rule.dead_letter,
                on_failure=rule.on_failure,
            )
            self._known[destination] = known
            if topic != destination:
                self._renamed[destination] = topic
        return known

    def exact_destinations(self) -> list[str]:
        """Return the destinations that rules name in full."""
        return list(self._exact)

    def blocks(self, destination: str) -> bool:
        """Tell whether a failed row there holds up later rows of its ordering key."""
        return self.route(destination).on_failure is OnFailure.BLOCK

    def names(self, destination: str) -> bool:
        """Tell whether a rule names the destination; else it leads to the topic of its own name."""
        return destination in self._exact or any(
            pattern.fullmatch(destination) for pattern, _ in self._patterns
        )

    def renamed(self) -> dict[str, str]:
        """Return the destinations asked for so far whose topic has another name."""
        return dict(self._renamed)

    def _rule(self, destination: str) -> Rule:
        exact = self._exact.get(destination)
        if exact is not None:
            return exact
        for pattern, rule in self._patterns:
            if pattern.fullmatch(destination):
                return rule
        return Rule(destination)


def topic_problem(topic: str) -> str | None:
    """Say why Kafka refuses this topic name, or None.

    The rule is Kafka's own (org.apache.kafka.common.internals.Topic): 1 to 249 characters of
    ASCII letters, digits, '.', '_' and '-', and neither "." nor "..".
    """
    if _TOPIC.fullmatch(topic) and topic not in {".", ".."}:
        return None
    if len(topic) > MAX_TOPIC:
        return f"topic name {topic[:40]!r}… has {len(topic)} characters, Kafka allows {MAX_TOPIC}"
    return (
        f"topic name {topic!r} is not one that Kafka allows: letters, digits, '.', '_' and '-' only"
    )
