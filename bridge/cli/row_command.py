"""What the commands that act on rows have in common: their options, and the rows these mean."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from bridge.cli.actor import ActorOption
from bridge.cli.given import time_or_age_from
from bridge.cli.options import ConfigOption, DatabaseUrlOption, JsonOption, SchemaOption
from bridge.lifecycle import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.operations import Selection

Own = ParamSpec("Own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The common options of one call."""

    ids: list[int] | None
    reason: str | None
    status: list[Status] | None
    destination: str | None
    event_type: str | None
    key: str | None
    ordering_key: str | None
    error: str | None
    since: str | None
    until: str | None
    trace: str | None
    limit: int | None
    dry_run: bool
    yes: bool
    by: str | None
    config: Path | None
    database_url: str | None
    schema: str | None
    json: bool

    def selection(self) -> Selection:
        """Return the rows that are meant; which action can have them is checked later."""
        from bridge.operations import Selection  # noqa: PLC0415 - `--help` must not wait for it

        return Selection(
            ids=tuple(self.ids or ()),
            statuses=tuple(self.status or ()),
            destination=self.destination,
            event_type=self.event_type,
            key_pattern=self.key,
            ordering_key=self.ordering_key,
            error_code=self.error,
            created_from=time_or_age_from(self.since, "--since"),
            created_to=time_or_age_from(self.until, "--until"),
            trace_id=self.trace,
        )


# The signature that the decorator gives to every such command.
def _common(
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="ID", help="outbox_ids; without any, filters.", show_default=False),
    ] = None,
    *,
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Why; needed except for --dry-run, the audit keeps it.",
            show_default=False,
        ),
    ] = None,
    status: Annotated[
        list[Status] | None,
        typer.Option(
            metavar="STATUS",
            case_sensitive=False,
            help="Rows of this status; alone it means all of them. May be repeated.",
        ),
    ] = None,
    destination: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Rows of this destination.")
    ] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TEXT", help="Rows of this event type.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Rows whose message key fits, such as order-17*."),
    ] = None,
    ordering_key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Rows of this ordering key.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="CODE", help="Rows whose last error has this code.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Rows enqueued from then on: ISO 8601, or 2h ago as 2h."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Rows enqueued before; as --since.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="ID", help="Rows of this trace (32 hexadecimal digits).")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many rows, lowest ids first.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show counts and examples, change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; needed for filters in scripts.")
    ] = False,
    by: ActorOption = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    raise NotImplementedError


def row_command(
    command: Callable[Concatenate[Asked, Own], None],
) -> Callable[..., None]:
    """Give a command the common options; it takes them together, and its own by keyword."""
    common = inspect.signature(_common).parameters
    hints = get_type_hints(_common, include_extras=True)
    own = {k: v for k, v in inspect.signature(command).parameters.items() if k != "asked"}
    own_hints = get_type_hints(
        command, globalns=vars(sys.modules[command.__module__]), include_extras=True
    )

    def call(**given: Any) -> None:
        asked = Asked(**{name: given.pop(name) for name in common})
        command(asked, **given)  # type: ignore[call-arg]  # the rest is the command's own

    first, *others = (p.replace(annotation=hints[name]) for name, p in common.items())
    inner = [p.replace(annotation=own_hints[name]) for name, p in own.items()]
    call.__signature__ = inspect.Signature([first, *inner, *others])  # type: ignore[attr-defined]  # read by inspect
    call.__annotations__ = {p.name: p.annotation for p in (first, *inner, *others)}
    call.__doc__ = command.__doc__
    call.__name__ = command.__name__
    call.__module__ = command.__module__
    return call
