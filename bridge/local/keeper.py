"""The process that holds local parts: it starts them, waits, and ends them.

`keep` is the foreground's `local up`; run as a module it is what `--detach` leaves behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from bridge.errors import LocalError, OutboxError
from bridge.local.identity import ProcessIdentity
from bridge.local.parts import LocalParts, local_parts
from bridge.local.state import LocalState, StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.local.broker import BrokerKind

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WATCH_SECONDS = 1.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class KeepOptions:
    """What to start, as `local_parts` takes it."""

    kafka: BrokerKind = "auto"
    brokers: int = 1
    database_url: str | None = None
    bootstrap_servers: str | None = None


def keep(
    file: StateFile,
    options: KeepOptions,
    *,
    progress: Callable[[str], None],
    announce: Callable[[LocalState], None],
) -> None:
    """Start the parts, call `announce` when they are ready, and stay until a signal ends it.

    Raises LocalError where a part does not start, or ends by itself; the others end with it.
    """
    starting = LocalState(ProcessIdentity.of(os.getpid()), brokers=options.brokers)
    file.write(starting)
    try:
        with (
            contextlib.suppress(_Asked),
            _signals_end_this(),
            local_parts(data=file.data, progress=progress, **asdict(options)) as parts,
        ):
            ready = _ready_state(starting, parts)
            file.write(ready)
            announce(ready)
            _watch(ready, file)
    except OutboxError as error:
        file.fail(starting, str(error))
        raise
    file.remove()


def _ready_state(starting: LocalState, parts: LocalParts) -> LocalState:
    return LocalState(
        keeper=starting.keeper,
        ready=True,
        database_url=parts.database_url,
        bootstrap_servers=parts.bootstrap_servers,
        database=parts.database,
        broker=parts.broker,
        is_real=parts.is_real,
        brokers=starting.brokers,
        servers=parts.servers(),
    )


def _watch(state: LocalState, file: StateFile) -> NoReturn:
    while True:
        time.sleep(_WATCH_SECONDS)
        for name, server in state.servers.items():
            if not server.alive:
                raise LocalError(
                    f"{name} ended by itself, so the other local parts end too. Its log is below "
                    f"{file.data}."
                )


class _Asked(BaseException):
    """Somebody asked this process to end."""


@contextlib.contextmanager
def _signals_end_this() -> Iterator[None]:
    def end(_number: int, _frame: object) -> NoReturn:
        # Once: a second signal must not interrupt the orderly end.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise _Asked

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keep_detached(
    file: StateFile, options: KeepOptions, *, progress: Callable[[str], None]
) -> LocalState:
    """Leave a process behind that keeps the parts, and return what it runs once it is ready.

    It holds none of the caller's descriptors and belongs to no terminal. Raises LocalError.
    """
    plan = {"data": str(file.data), "options": asdict(options)}
    with file.log.open("ab") as log:
        start = log.tell()
        keeper = subprocess.Popen(
            [sys.executable, "-m", "bridge.local.keeper", json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    try:
        state = await_ready(
            file, ProcessIdentity.of(keeper.pid), progress=progress, log_start=start
        )
    except BaseException:
        keeper.terminate()
        keeper.wait()
        raise
    # It is meant to outlive this process, which therefore must not warn about it.
    keeper.returncode = 0
    return state


def await_ready(
    file: StateFile,
    keeper: ProcessIdentity,
    *,
    progress: Callable[[str], None],
    log_start: int | None = None,
) -> LocalState:
    """Wait for a keeper's parts, passing its progress on; raises LocalError where they fail."""
    if not file.log.exists():
        log_start = 0
    position = file.log.stat().st_size if log_start is None else log_start
    while True:
        alive = keeper.alive
        position = _pass_on(file.log, position, progress)
        state = file.read()
        if state is not None and state.keeper == keeper:
            if state.error:
                file.remove()
                raise LocalError(state.error)
            if state.ready:
                return state
        if not alive:
            raise LocalError(f"The local parts ended while starting; see {file.log}.")
        time.sleep(_POLL_SECONDS)


def _pass_on(log: Path, position: int, progress: Callable[[str], None]) -> int:
    if not log.exists():
        return position
    with log.open("rb") as file:
        file.seek(position)
        new = file.read()
    complete = new[: new.rfind(b"\n") + 1]
    for line in complete.decode(errors="replace").splitlines():
        progress(line)
    return position + len(complete)


def main() -> int:
    """Keep what the first argument describes; the output is a log that `up` passes on."""
    plan = json.loads(sys.argv[1])
    file = StateFile(Path(plan["data"]))

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    try:
        keep(file, KeepOptions(**plan["options"]), progress=say, announce=lambda _: None)
    except OutboxError as error:
        # The one who waits for it reads the reason in the state file.
        say(f"ended: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
