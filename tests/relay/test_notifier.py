"""What the relay tells systemd: ready, alive, stopping; nothing where nobody asks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from bridge.relay.notifier import Notifier
from bridge.settings import ServiceManager, service_manager
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.relays import Outbox, StartRelayFunction


class Manager:
    """A socket as systemd has it, and what came to it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0"))
        self._socket.settimeout(0.1)
        self.messages: list[str] = []

    def hear(self, wanted: str, times: int = 1) -> None:
        def heard() -> bool:
            with contextlib.suppress(TimeoutError):
                self.messages.append(self._socket.recv(4096).decode())
            return sum(wanted in message.split("\n") for message in self.messages) >= times

        wait_until(heard, f"{times} times {wanted}", PATIENCE)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "s") if request.param == "file" else f"@outbox-bridge-{os.getpid()}"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    made = Manager(address)
    yield made
    made.close()


@on_one_server
def test_a_relay_is_ready_when_it_sends_alive_meanwhile_and_stopping_on_a_signal(
    outbox: Outbox, start_relay: StartRelayFunction, manager: Manager, address: str
) -> None:
    relay = start_relay(
        env={
            "NOTIFY_SOCKET": address,
            "WATCHDOG_USEC": "200000",
            # Nobody is there yet: alive, and not ready.
            "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        },
        wait=False,
    )
    manager.hear("STATUS=waiting for Kafka")
    manager.hear("WATCHDOG=1", times=3)
    assert not any("READY=1" in message for message in manager.messages)
    relay.process.send(signal.SIGTERM)
    manager.hear("STOPPING=1")
    assert relay.process.wait(PATIENCE) == 0


@on_one_server
def test_ready_comes_after_the_registration(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    kafka: object,
    manager: Manager,
    address: str,
) -> None:
    relay = start_relay(env={"NOTIFY_SOCKET": address}, wait=False)
    manager.hear("READY=1")
    assert outbox.relay_names() == {relay.name}
    assert not any("WATCHDOG" in message for message in manager.messages)
    relay.stop()
    manager.hear("STOPPING=1")
    assert sum("STOPPING=1" in message for message in manager.messages) == 1


def test_signs_of_life_stay_out_once_a_stage_is_gone(manager: Manager, address: str) -> None:
    alive = threading.Event()
    alive.set()
    notifier = Notifier(ServiceManager(address, 0.1), alive.is_set)
    notifier.start()
    manager.hear("WATCHDOG=1", times=3)
    alive.clear()
    manager.messages.clear()
    notifier.status("a stage is gone")
    manager.hear("STATUS=a stage is gone")
    manager.messages.clear()
    for _ in range(5):
        notifier.status("later")
        manager.hear("STATUS=later")
    # One may have been under way when the stage ended.
    assert sum("WATCHDOG=1" in message for message in manager.messages) <= 1
    notifier.close()


@pytest.mark.parametrize("nowhere", [None, "/no/such/socket", "@nobody-listens", "vsock:2:3"])
def test_nobody_who_listens_is_no_matter(nowhere: str | None) -> None:
    notifier = Notifier(ServiceManager(nowhere, 0.1), lambda: True)
    notifier.start()
    notifier.ready("sending")
    notifier.stopping()
    notifier.close()


def test_the_environment_says_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    assert service_manager() == ServiceManager()
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert service_manager() == ServiceManager(None, None)
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/s")
    assert service_manager() == ServiceManager("/run/s", 30.0)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert service_manager() == ServiceManager("/run/s", 30.0)
    # Meant for another process, such as a shell around this one.
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert service_manager() == ServiceManager("/run/s", None)
    for broken in ("0", "soon", ""):
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        monkeypatch.setenv("WATCHDOG_USEC", broken)
        assert service_manager() == ServiceManager("/run/s", None)
