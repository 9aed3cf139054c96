"""Exact rules before patterns, patterns in order, else the destination is the topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.routing import MAX_TOPIC, KeyChoice, Router, Rule, topic_problem


def test_without_a_rule_the_destination_is_the_topic() -> None:
    route = Router().route("orders")
    assert (route.topic, route.key, route.problem) == ("orders", KeyChoice.AUTO, None)


def test_exact_rules_come_before_patterns_wherever_they_stand() -> None:
    router = Router([Rule("orders.*", "pattern"), Rule("orders.eu", "exact"), Rule("*", "rest")])
    topics = {name: router.route(name).topic for name in ("orders.eu", "orders.us", "other")}
    assert topics == {"orders.eu": "exact", "orders.us": "pattern", "other": "rest"}


def test_the_first_pattern_that_matches_wins() -> None:
    router = Router([Rule("a*", "first"), Rule("ab*", "second")])
    assert router.route("abc").topic == "first"


def test_the_first_of_two_exact_rules_wins() -> None:
    assert Router([Rule("a", "first"), Rule("a", "second")]).route("a").topic == "first"


def test_a_rule_without_topic_keeps_the_name_and_gives_the_key() -> None:
    route = Router([Rule("a*", key=KeyChoice.MESSAGE_KEY)]).route("abc")
    assert (route.topic, route.key) == ("abc", KeyChoice.MESSAGE_KEY)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders.*", "orders.eu.west", "ordersXeu"),
        ("order?", "orders", "order"),
        ("[ab]c", "ac", "cc"),
        ("[!ab]c", "cc", "ac"),
        ("a*\nb", "ax\nb", "ab"),
    ],
)
def test_patterns_are_shell_style_and_match_the_whole_name(
    pattern: str, matching: str, other: str
) -> None:
    router = Router([Rule(pattern, "hit")])
    assert router.route(matching).topic == "hit"
    assert router.route(other).topic == other
    assert router.route(f"x{matching}").topic == f"x{matching}"


def test_renamed_tells_the_routes_in_use_whose_topic_has_another_name() -> None:
    router = Router([Rule("a", "shop.a"), Rule("never", "asked")])
    for name in ("a", "b", "a"):
        router.route(name)
    renamed = router.renamed()
    assert renamed == {"a": "shop.a"}
    renamed.clear()
    assert router.renamed() == {"a": "shop.a"}


def test_a_destination_that_no_topic_can_have_is_a_problem_of_its_route() -> None:
    assert "not one that Kafka allows" in (Router().route("bad topic!").problem or "")
    assert Router([Rule("bad topic!", "good")]).route("bad topic!").problem is None


@pytest.mark.parametrize("topic", ["a", "A.b_c-9", "...", "a.", "_", "x" * MAX_TOPIC])
def test_topics_that_kafka_allows(topic: str) -> None:
    assert topic_problem(topic) is None


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a b", "a/b", "ä", "a\n", "a\x00", "x" * (MAX_TOPIC + 1), "\u0661"]
)
def test_topics_that_kafka_refuses(topic: str) -> None:
    assert topic_problem(topic)


@given(st.text(max_size=300))
def test_every_destination_has_a_route(destination: str) -> None:
    route = Router([Rule("*", key=KeyChoice.ORDERING_KEY)]).route(destination)
    assert route.topic == destination
    assert route.key is KeyChoice.ORDERING_KEY
