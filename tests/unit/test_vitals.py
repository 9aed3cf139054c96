"""Signs of life: a silent thread is frozen, unless it rests or waits for somebody else."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bridge.relay.probes import Probes
from bridge.relay.vitals import Pulse, Vitals


@dataclass
class Asking:
    asked: float = 0.0
    active_at: float = 0.0
    answer_timeout: float = 60.0


def made(pulse: Pulse, session: Asking | None = None, now: float = 1000.0) -> Vitals:
    vitals = Vitals(lambda: now)
    vitals.watch("claim", pulse, session)
    return vitals


def test_a_thread_is_as_silent_as_its_last_beat_is_old() -> None:
    pulse = Pulse()
    pulse.at = 990.0
    assert made(pulse).silences() == {"claim": 10.0}
    assert made(pulse).frozen(9.0) == {"claim": 10.0}
    assert made(pulse).frozen(10.0) == {}


def test_a_thread_that_rests_has_not_begun_or_has_ended_is_not_silent() -> None:
    pulse = Pulse()
    assert made(pulse).silences() == {"claim": 0.0}
    pulse.beat()
    pulse.rest()
    assert pulse.at == math.inf
    pulse.at = 0.0
    vitals = made(pulse)
    vitals.ended("claim")
    vitals.ended("some other thread")
    assert vitals.silences() == {"claim": 0.0}


def test_waiting_for_the_database_is_no_silence_as_long_as_its_answer_may_take() -> None:
    pulse = Pulse()
    pulse.at = 900.0
    assert made(pulse, Asking(asked=940.0)).silences() == {"claim": 0.0}
    # What nobody cuts although its time is over was not the database.
    assert made(pulse, Asking(asked=930.0)).silences() == {"claim": 100.0}
    assert made(pulse, Asking(active_at=995.0)).silences() == {"claim": 5.0}


def test_threads_that_come_and_go_are_watched_while_they_are_there() -> None:
    vitals, pulse = made(Pulse()), Pulse()
    pulse.at = 800.0
    threads = {"poll main": pulse}
    vitals.watch_all(lambda: threads)
    assert vitals.frozen(60.0) == {"poll main": 200.0}
    threads.clear()
    assert vitals.frozen(60.0) == {}


def test_probes_tell_what_is_wrong() -> None:
    pulse, ended, obstacles = Pulse(), ["outbox-bridge-settle"], ["Kafka does not answer"]
    pulse.at = 900.0
    probes = Probes(made(pulse), 60.0, ended=lambda: ended, obstacles=lambda: obstacles)
    assert probes.live() == [
        "thread outbox-bridge-settle has ended",
        "thread claim has given no sign of life for 100 s",
    ]
    (why,) = probes.ready()
    assert why == probes.started()[0]
    assert "not registered yet" in why
    probes.has_started = True
    assert probes.started() == []
    assert probes.ready() == ["Kafka does not answer"]
    obstacles.clear()
    assert probes.ready() == []
