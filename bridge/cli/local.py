"""`outbox-bridge local up|env|status|down`: PostgreSQL and Kafka on this machine."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import exit_codes
from bridge.cli.options import ConfigOption, JsonOption, settings_from
from bridge.cli.output import Output

if TYPE_CHECKING:
    from bridge.local.identity import ProcessIdentity
    from bridge.local.state import LocalState, StateFile
    from bridge.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    help="Run PostgreSQL and Kafka on this machine, for trying things out.",
)

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder that everything is kept in, and that tells one `up` from another "
        "(else OUTBOX_BRIDGE_LOCAL_DATA, else the user's state folder).",
    ),
]


def _check_brokers(number: int) -> int:
    if number not in (1, 3):
        raise typer.BadParameter("a local Kafka has 1 or 3 brokers")
    return number


@app.command()
def up(
    *,
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers", metavar="1|3", callback=_check_brokers, help="Number of Kafka brokers."
        ),
    ] = 1,
    data: DataOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once everything is ready.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start PostgreSQL and Kafka, or find those that run already.

    Prints the settings that lead every other command to them. Without --detach it stays until
    Ctrl-C and ends them.

    Examples:
      eval "$(outbox-bridge local up --detach)"
      outbox-bridge local up --brokers 3 --data ./parts
    """
    from bridge.local.keeper import KeepOptions, keep, keep_detached  # noqa: PLC0415 - slow import

    output = Output(as_json=as_json)
    settings = settings_from(config)
    file = _state_file(data, settings)
    given_url = settings.local.database_url
    options = KeepOptions(
        kafka=settings.local.kafka,
        brokers=brokers,
        database_url=given_url.get_secret_value() if given_url is not None else None,
        bootstrap_servers=settings.local.bootstrap_servers,
    )
    with contextlib.ExitStack() as until_ready:
        until_ready.enter_context(
            file.lock(lambda: output.note("waiting for another `outbox-bridge local` to finish"))
        )
        found = _running(file, output)
        if found is not None:
            output.note(f"already running in {file.data} (process {found.keeper.pid})")
            if found.brokers != brokers:
                output.note(f"with {found.brokers} broker(s), not {brokers}")
            _announce(output, file, found, started=False)
            return
        if detach:
            state = keep_detached(file, options, progress=output.note)
            _announce(output, file, state, started=True)
            output.note("end them with: outbox-bridge local down" + _data_words(data))
            return

        def announce(state: LocalState) -> None:
            until_ready.close()
            _announce(output, file, state, started=True)
            output.note("running until Ctrl-C; `--detach` returns instead")

        keep(file, options, progress=output.note, announce=announce)
        output.note("stopped")


@app.command()
def env(
    *, data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Print the settings of what runs, for the shell's eval.

    Examples:
      eval "$(outbox-bridge local env)"
    """
    output = Output(as_json=as_json)
    file = _state_file(data, settings_from(config))
    state = file.live()
    if state is None or not state.ready:
        output.note(f"nothing is running in {file.data}; start it with: outbox-bridge local up")
        raise typer.Exit(exit_codes.PRECONDITION)
    if as_json:
        output.json(state.environment())
    else:
        _export(output, state)


@app.command()
def status(
    *, data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show what runs; exit code 3 where nothing does."""
    output = Output(as_json=as_json)
    file = _state_file(data, settings_from(config))
    state = file.live()
    last = file.read()
    error = last.error if state is None and last is not None else ""
    if as_json:
        facts = {"data": str(file.data), "running": state is not None, "error": error or None}
        output.json({**facts, **_described(state)})
    elif state is None:
        output.line(f"nothing is running in {file.data}")
        if error:
            output.line(f"the last run ended: {error}")
    else:
        output.pairs(
            {
                "data": str(file.data),
                "state": "running" if state.ready else "starting",
                "database": state.database,
                "broker": state.broker,
                **state.environment(),
            }
        )
        rows = [(name, one.pid, _word(one.alive)) for name, one in _processes(state).items()]
        output.table(["process", "pid", "state"], rows)
    if state is None:
        raise typer.Exit(exit_codes.PRECONDITION)


@app.command()
def down(
    *, data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """End what `up` started, and nothing else; the data stay for the next `up`."""
    output = Output(as_json=as_json)
    file = _state_file(data, settings_from(config))
    stopped = False
    if file.data.is_dir():
        with file.lock(lambda: output.note("waiting for another `outbox-bridge local` to finish")):
            state = file.read()
            if state is not None:
                stopped = any(process.alive for process in _processes(state).values())
                state.end()
                file.remove()
    output.note(
        f"stopped; the data stay in {file.data}"
        if stopped
        else f"nothing was running in {file.data}"
    )
    if as_json:
        output.json({"data": str(file.data), "stopped": stopped})


def _state_file(data: Path | None, settings: Settings) -> StateFile:
    from bridge.local.state import StateFile, default_data_folder  # noqa: PLC0415 - slow import

    return StateFile(data or settings.local.data or default_data_folder())


def _running(file: StateFile, output: Output) -> LocalState | None:
    """Return what runs and is whole; what is left of something broken is ended."""
    from bridge.local.keeper import await_ready  # noqa: PLC0415 - slow import

    state = file.read()
    if state is None:
        return None
    if state.keeper.alive and not state.ready:
        state = await_ready(file, state.keeper, progress=output.note)
    if state.complete:
        return state
    if any(process.alive for process in _processes(state).values()):
        output.note("ending what is left of an earlier run")
    state.end()
    file.remove()
    return None


def _announce(output: Output, file: StateFile, state: LocalState, *, started: bool) -> None:
    output.note(f"{state.database}, {state.broker}; data in {file.data}")
    if output.as_json:
        output.json({"data": str(file.data), "started": started, **_described(state)})
    else:
        _export(output, state)
    # In the foreground the reader waits for these lines while this process goes on.
    sys.stdout.flush()


def _export(output: Output, state: LocalState) -> None:
    for name, value in state.environment().items():
        output.line(f"export {name}={shlex.quote(value)}")


def _described(state: LocalState | None) -> dict[str, object]:
    if state is None:
        return {}
    return {
        "ready": state.ready,
        "database": state.database,
        "broker": state.broker,
        "mock": not state.is_real,
        "database_url": state.database_url,
        "bootstrap_servers": state.bootstrap_servers,
        "processes": [
            {"name": name, "pid": process.pid, "running": process.alive}
            for name, process in _processes(state).items()
        ],
    }


def _processes(state: LocalState) -> dict[str, ProcessIdentity]:
    return {"keeper": state.keeper, **state.servers}


def _word(alive: bool) -> str:  # noqa: FBT001 - a predicate's own value
    return "running" if alive else "ended"


def _data_words(data: Path | None) -> str:
    return f" --data {shlex.quote(str(data))}" if data is not None else ""
