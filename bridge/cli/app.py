"""The command line's root: a table of commands, each imported only when it is called."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bridge.cli import exit_codes
from bridge.errors import OutboxError
from bridge.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = "outbox-bridge"


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a command stands (`module:attribute`: a function or a typer app) and its one line."""

    target: str
    line: str
    section: str


_RUN, _LOOK, _ACT, _STEER = "Send", "Look and write", "Act on rows (audited)", "Steer"
_SET_UP, _TRY = "Set up", "Try it"

_COMMANDS: dict[str, _Entry] = {
    "relay": _Entry("bridge.cli.relay:relay", "Send the outbox to Kafka.", _RUN),
    "hand-off": _Entry(
        "bridge.cli.hand_off:hand_off", "Call an HTTP API for each message of a topic.", _RUN
    ),
    "console": _Entry("bridge.cli.console:console", "Serve the operator's pages.", _RUN),
    "status": _Entry("bridge.cli.status:status", "Show what is unsent, failed and sent.", _LOOK),
    "list": _Entry("bridge.cli.list:list_messages", "List messages.", _LOOK),
    "show": _Entry("bridge.cli.show:show", "Show everything about one message.", _LOOK),
    "keys": _Entry("bridge.cli.keys:keys", "List ordering keys that are held up.", _LOOK),
    "enqueue": _Entry("bridge.cli.enqueue:enqueue", "Write one message to the outbox.", _LOOK),
    "health": _Entry(
        "bridge.cli.health:health", "Check database, schema, Kafka and relays.", _LOOK
    ),
    "doctor": _Entry(
        "bridge.cli.doctor:doctor", "Look for what is wrong, and say what to do.", _LOOK
    ),
    "top": _Entry("bridge.cli.top:top", "Watch the outbox live in the terminal.", _LOOK),
    "retry": _Entry("bridge.cli.resend:retry", "Let FAILED rows try again.", _ACT),
    "send-now": _Entry("bridge.cli.resend:send_now", "Make waiting rows due.", _ACT),
    "cancel": _Entry("bridge.cli.withdraw:cancel", "Withdraw rows that are not sent.", _ACT),
    "skip": _Entry("bridge.cli.withdraw:skip", "Let a held key go on without its head.", _ACT),
    "edit": _Entry("bridge.cli.edit:edit", "Change rows that are not sent.", _ACT),
    "release": _Entry("bridge.cli.withdraw:release", "Take rows back from a dead relay.", _ACT),
    "replay": _Entry("bridge.cli.resend:replay", "Send SENT rows once more.", _ACT),
    "audit": _Entry("bridge.cli.audit:app", "Show who did what and why, and prove it.", _ACT),
    "pause": _Entry("bridge.cli.control:pause", "Stop sending to one or all destinations.", _STEER),
    "resume": _Entry("bridge.cli.control:resume", "Take a pause back.", _STEER),
    "limit": _Entry(
        "bridge.cli.control:limit", "Limit the rows a second, over all relays.", _STEER
    ),
    "batch": _Entry("bridge.cli.control:batch", "Limit the rows taken in one claim.", _STEER),
    "quiet": _Entry("bridge.cli.control:quiet", "Send nothing within daily hours.", _STEER),
    "switches": _Entry("bridge.cli.control:switches", "List the switches that are set.", _STEER),
    "migrate": _Entry("bridge.cli.migrate:app", "Create or change the schema.", _SET_UP),
    "prune": _Entry("bridge.cli.prune:prune", "Delete what retention does not keep.", _SET_UP),
    "repair": _Entry("bridge.cli.repair:repair", "Find what triggers did not see.", _SET_UP),
    "config": _Entry("bridge.cli.config:app", "Show the effective settings.", _SET_UP),
    "local": _Entry("bridge.cli.local:app", "Run PostgreSQL and Kafka on this machine.", _TRY),
    "demo": _Entry("bridge.cli.demo:demo", "See the whole thing run in a minute.", _TRY),
}


class _LazyGroup(TyperGroup):
    """A group whose help is written from the table and whose commands are loaded by name."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - see above
        entry = _COMMANDS.get(cmd_name)
        return None if entry is None else _load(cmd_name, entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in _COMMANDS:
            nearest = difflib.get_close_matches(args[0], _COMMANDS, 1)
            ctx.fail(
                f"no command {args[0]!r}" + (f"; did you mean {nearest[0]}?" if nearest else "")
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - see above
        width = max(len(name) for name in _COMMANDS)
        for section in dict.fromkeys(entry.section for entry in _COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name.ljust(width), entry.line)
                        for name, entry in _COMMANDS.items()
                        if entry.section == section
                    ]
                )


def _load(name: str, entry: _Entry) -> Any:
    module, _, attribute = entry.target.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name=name, help=_keep_examples(target))(target)
        target = app
    target.rich_markup_mode = None  # plain help needs no rich
    target._add_completion = False  # noqa: SLF001 - the root alone completes
    for registered in target.registered_commands:
        if registered.help is None and registered.callback is not None:
            registered.help = _keep_examples(registered.callback)
    command = typer.main.get_command(target)
    command.name = name
    return command


def _keep_examples(function: Callable[..., Any]) -> str:
    r"""Return the docstring as help; below `Examples:` it keeps its line breaks (click's \b)."""
    text = inspect.cleandoc(function.__doc__ or "")
    return text.replace("\nExamples:\n", "\n\b\nExamples:\n")


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if value:
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        raise typer.Exit


class _Run:
    """One call of the program."""

    debug = False

    def root(self) -> Any:
        app = typer.Typer(
            cls=_LazyGroup,
            name=PROGRAM,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

        @app.callback()
        def options(
            *,
            debug: Annotated[
                bool, typer.Option("--debug", help="Show tracebacks of errors.")
            ] = False,
            version: Annotated[  # noqa: ARG001 - its callback does the work
                bool,
                typer.Option(
                    "--version",
                    help="Show the version and exit.",
                    is_eager=True,
                    callback=_show_version,
                ),
            ] = False,
        ) -> None:
            """Send what PostgreSQL transactions wrote to the outbox to Kafka, and nothing else.

            Two settings are needed: OUTBOX_BRIDGE_DATABASE_URL (or libpq's PG* variables) and
            OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS. `outbox-bridge COMMAND --help` says more.
            """
            self.debug = debug

        return typer.main.get_command(app)

    def call(self, arguments: Sequence[str]) -> int:
        try:
            self.root()(args=list(arguments), prog_name=PROGRAM)
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):
                raise end.__context__ from None
            return end.code if isinstance(end.code, int) else exit_codes.OK
        except KeyboardInterrupt:
            return exit_codes.INTERRUPTED
        except (ImportError, BrokenPipeError):
            raise
        except OutboxError as error:
            self._report(error, str(error))
            return exit_codes.exit_code(error)
        except Exception as error:  # noqa: BLE001 - the program's outermost edge
            where = f"`{PROGRAM} --debug …` shows where it comes from"
            self._report(error, f"unexpected {type(error).__name__}: {error}; {where}")
            return exit_codes.FAILURE
        return exit_codes.OK

    def _report(self, error: BaseException, text: str) -> None:
        if self.debug:
            traceback.print_exception(error)
        sys.stderr.write(f"{PROGRAM}: {text}\n")


def run(arguments: Sequence[str]) -> int:
    """Run the program and return its exit code.

    Errors become one message on stderr, never a traceback, unless `--debug` comes first.
    ModuleNotFoundError passes: the caller says which extra is missing.
    """
    current = _Run()
    try:
        code = current.call(arguments)
        sys.stdout.flush()  # a closed pipe is told here, not when the interpreter ends
    except BrokenPipeError:
        return _abandon_stdout()
    return code


def _abandon_stdout() -> int:
    # What is still buffered would raise again when the interpreter ends.
    sys.stdout = sys.__stdout__ or sys.stdout  # typer has wrapped it
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_codes.BROKEN_PIPE
