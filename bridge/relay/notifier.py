"""Tells systemd, or whoever speaks its protocol, that the relay is ready, alive or stopping."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.settings import ServiceManager


class Notifier:
    """sd_notify(3): one datagram for each message; does nothing where nobody listens.

    `is_alive` is asked before each sign of life, twice within the time that the manager allows:
    once it answers False, signs of life stay out and the manager restarts the relay. No error
    leaves this class: the relay's work does not depend on who watches it.
    """

    def __init__(self, manager: ServiceManager, is_alive: Callable[[], bool]) -> None:
        self._address = _address(manager.socket)
        self._watchdog = manager.watchdog
        self._is_alive = is_alive
        self._stop = threading.Event()

    def start(self) -> None:
        """Give signs of life from now on, where they are asked for."""
        if self._watchdog is not None and self._address is not None:
            threading.Thread(
                target=self._live, args=(self._watchdog / 2,), name="watchdog", daemon=True
            ).start()

    def ready(self, status: str) -> None:
        """Say that the relay works."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        """Say in one line what the relay does; `systemctl status` shows it."""
        self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """Say that the relay is about to end."""
        self._send("STOPPING=1\nSTATUS=draining")

    def close(self) -> None:
        """End the signs of life; safe to call twice."""
        self._stop.set()

    def _live(self, interval: float) -> None:
        while True:
            if self._is_alive():
                self._send("WATCHDOG=1")
            if self._stop.wait(interval):
                return

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A manager that hangs must not hang the relay.
                sender.settimeout(1.0)
                sender.sendto(message.encode(), self._address)
        except OSError:
            return


def _address(name: str | None) -> str | None:
    """Return the socket's address: `@name` stands for one in the abstract namespace."""
    if name is None or name[:1] not in ("/", "@"):
        return None  # vsock and others are not for processes of this machine
    return "\0" + name[1:] if name[0] == "@" else name
