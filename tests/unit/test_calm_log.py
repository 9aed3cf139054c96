"""librdkafka's own log: one line of a kind in a while, however often it fails to connect."""

from __future__ import annotations

import logging

from bridge.kafka.producer import Calm


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("bridge.kafka.client", logging.ERROR, "", 0, text, None, None)


def test_a_kind_of_line_comes_once_in_a_while() -> None:
    now = 100.0
    calm = Calm(60.0, lambda: now)
    refused = "FAIL [rdkafka#producer-1] [thrd:localhost:9092]: Connect failed: refused"
    assert calm.filter(line(refused))
    assert not any(calm.filter(line(refused.replace("9092", str(n)))) for n in range(50))
    assert calm.filter(line("SSL [rdkafka#producer-1] certificate has expired"))
    now += 60
    assert calm.filter(line(refused))
