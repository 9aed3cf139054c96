"""What runs in a data folder: a file that survives its writer and is believed only when true."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import platformdirs

from bridge.errors import LocalError
from bridge.local.file_lock import file_lock
from bridge.local.identity import ProcessIdentity
from bridge.local.process import wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

_STOP_SECONDS = 60.0
_KILL_SECONDS = 15.0
_COLLECT_SECONDS = 3.0


def default_data_folder() -> Path:
    """Return the folder of `local up` without `--data`, in the user's state folder."""
    return platformdirs.user_state_path("outbox-bridge") / "local"


@dataclass(frozen=True)
class LocalState:
    """What one `local up` started; `keeper` is the process that holds it and ends with it.

    `ready` is False while it starts; `error` says why it did not. `brokers` counts them.
    """

    keeper: ProcessIdentity
    ready: bool = False
    error: str = ""
    database_url: str = field(default="", repr=False)
    bootstrap_servers: str = ""
    database: str = ""
    broker: str = ""
    is_real: bool = True
    brokers: int = 1
    servers: dict[str, ProcessIdentity] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the keeper and every server it started still run."""
        return self.keeper.alive and all(server.alive for server in self.servers.values())

    def environment(self) -> dict[str, str]:
        """Return the two settings that lead every other command here."""
        return {
            "OUTBOX_BRIDGE_DATABASE_URL": self.database_url,
            "OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
        }

    def end(self) -> None:
        """End exactly these processes: in good order first, then by force."""
        self.keeper.send(signal.SIGTERM)
        self.keeper.send(signal.SIGCONT)
        if not wait_until_gone([self.keeper], _STOP_SECONDS):
            self.keeper.send(signal.SIGKILL)
        # Without their keeper the servers end by themselves.
        if not wait_until_gone(list(self.servers.values()), _KILL_SECONDS):
            for server in self.servers.values():
                server.send(signal.SIGKILL)
            wait_until_gone(list(self.servers.values()), _KILL_SECONDS)
        # The keeper's parent has long ended; the system takes a moment to take note in its place.
        wait_until_gone([self.keeper, *self.servers.values()], _COLLECT_SECONDS, collected=True)


class StateFile:
    """`state.json` of a data folder, for its owner's eyes only: it holds a password."""

    def __init__(self, data: Path) -> None:
        self.data = data.expanduser().resolve()
        self.log = self.data / "local.log"
        self._path = self.data / "state.json"

    def lock(self, waiting: Callable[[], None]) -> AbstractContextManager[None]:
        """Return the lock that `up` holds until everything is ready, and `down` until it ended."""
        try:
            # As root the database server's own account has to pass.
            mode = 0o711 if os.geteuid() == 0 else 0o700
            self.data.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(
                f"The data folder {self.data} cannot be made: {error.strerror}. Give another with "
                "--data."
            ) from error
        return file_lock(self.data / "lock", waiting)

    def read(self) -> LocalState | None:
        """Return what the file says, true or not; None where there is none or it is unreadable."""
        try:
            kept: dict[str, Any] = json.loads(self._path.read_text())
            keeper = ProcessIdentity(**kept.pop("keeper"))
            servers = {name: ProcessIdentity(**one) for name, one in kept.pop("servers").items()}
            return LocalState(keeper=keeper, servers=servers, **kept)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def live(self) -> LocalState | None:
        """Return what the file says where its keeper still runs: not after a reboot or a crash."""
        state = self.read()
        return state if state is not None and state.keeper.alive else None

    def write(self, state: LocalState) -> None:
        """Replace the file at once."""
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(asdict(state)))
        fresh.rename(self._path)

    def fail(self, state: LocalState, error: str) -> None:
        """Leave the reason of a failed start for the one who waits for it."""
        self.write(replace(state, error=error))

    def remove(self) -> None:
        """Forget what was running."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
