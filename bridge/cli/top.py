"""`outbox-bridge top`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment, printable
from bridge.errors import DatabaseError

if TYPE_CHECKING:
    import psycopg
    from rich.console import RenderableType

    from bridge.cli.overview import Rates, Sample, Section
    from bridge.settings import Settings

_HELD = 20
"""Held keys that are read; more are counted only."""
_SHARE = 5
"""The pause is at least so many times as long as the look: a large backlog must not pay for it."""
_FRAME = 18
"""Lines beside the tables' rows: titles, heads, totals."""
_QUIT = frozenset({"q", "\x1b", "\x03", "\x04"})


def top(
    *,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, max=3600, help="Time between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Watch the outbox live: counts, rates, destinations, failures, held keys and relays.

    What needs attention stands first. `q` ends it, any other key looks at once. Where stdout is no
    terminal it looks once and writes plain text; --json looks once and writes JSON.

    Examples:
      outbox-bridge top
      outbox-bridge top --once
      watch -n 10 outbox-bridge top --once
    """
    settings = settings_from(config, database_url=database_url, schema=schema)
    output = Output(as_json=json)
    if once or json or not output.is_terminal:
        _look_once(settings, output)
    else:
        _Live(settings, interval).run()


def take(conn: psycopg.Connection[Any], schema: str) -> Sample:
    """Read everything that is shown."""
    from bridge.cli.overview import Sample  # noqa: PLC0415 - after the options are checked
    from bridge.held_keys import count_held_keys, list_held_keys  # noqa: PLC0415 - likewise
    from bridge.monitor import (  # noqa: PLC0415 - likewise
        snapshot,
        throughput,
        throughput_by_destination,
    )

    return Sample(
        snapshot(conn, schema),
        throughput(conn, schema),
        throughput_by_destination(conn, schema),
        list_held_keys(conn, schema, limit=_HELD),
        count_held_keys(conn, schema),
    )


def _look_once(settings: Settings, output: Output) -> None:
    from bridge.cli.overview import headline, rates, sections  # noqa: PLC0415 - as above
    from bridge.cli.status import document  # noqa: PLC0415 - as above
    from bridge.database.reading import reading  # noqa: PLC0415 - as above

    name = settings.database.schema_name
    with reading(settings.database_url, name, stage="top") as conn:
        sample = take(conn, name)
    speed = rates(sample, None)
    if output.as_json:
        output.json(
            {
                **document(sample.backlog, name),
                "sent_per_second": speed.sent,
                "minutes": list(sample.minutes),
                "held_keys": list(sample.held),
                "held_count": sample.held_count,
            }
        )
        return
    for line in headline(sample, speed):
        output.line(line)
    for section in sections(sample, speed):
        output.line()
        output.table(section.columns, section.rows)
        if section.more:
            output.line(f"and {section.more:,} more")
    if not sample.backlog.relays:
        output.line()
        output.line("No relay is registered.")


class _Live:
    """The screen, drawn anew until somebody ends it; a lost database is told and looked for."""

    def __init__(self, settings: Settings, interval: float) -> None:
        self._settings = settings
        self._schema = settings.database.schema_name
        self._interval = interval
        self._before: Sample | None = None
        self._shown: RenderableType = ""
        self._trouble = ""

    def run(self) -> None:
        """Draw until `q`, or an interrupt; raises where the first look already fails."""
        from rich.console import Console  # noqa: PLC0415 - only a person at a terminal waits for it
        from rich.live import Live  # noqa: PLC0415 - as above

        from bridge.cli.keyboard import keyboard  # noqa: PLC0415 - as above

        console = Console()
        try:
            with (
                keyboard() as keys,
                Live(console=console, screen=True, auto_refresh=False) as live,
            ):
                while self._watch(live, console.height, keys):
                    pass
        except KeyboardInterrupt:
            return

    def _watch(self, live: Any, height: int, keys: Any) -> bool:
        """Look over one connection until it is lost; False when it is to end."""
        from bridge.database.reading import reading  # noqa: PLC0415 - as above

        try:
            with reading(self._settings.database_url, self._schema, stage="top") as conn:
                while True:
                    started = time.monotonic()
                    self._draw(take(conn, self._schema), live.console.height)
                    live.update(self._shown, refresh=True)
                    took = time.monotonic() - started
                    if keys.wait(max(self._interval, _SHARE * took)) in _QUIT:
                        return False
        except DatabaseError as error:
            if self._before is None:
                raise
            self._trouble = printable(f"{error}; trying again")
            self._draw(self._before, height)
            live.update(self._shown, refresh=True)
            return keys.wait(self._interval) not in _QUIT

    def _draw(self, sample: Sample, height: int) -> None:
        from rich.console import Group  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        from bridge.cli.overview import headline, rates, sections  # noqa: PLC0415 - as above

        is_new = sample is not self._before
        speed: Rates = rates(sample, self._before if is_new else None)
        if is_new:
            self._before, self._trouble = sample, ""
        head = f"outbox-bridge top  {moment(sample.backlog.taken_at)}  schema {self._schema}"
        lines = [Text(head, style="bold")]
        if self._trouble:
            lines.append(Text(self._trouble, style="bold red"))
        lines += [Text(line) for line in headline(sample, speed)]
        if not sample.backlog.relays:
            lines.append(Text("no relay is registered", style="bold red"))
        tables = [_table(one) for one in sections(sample, speed, max(8, height - _FRAME))]
        self._shown = Group(*lines, *tables)


def _table(section: Section) -> RenderableType:
    from rich import box  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        caption=f"and {section.more:,} more" if section.more else None,
        caption_justify="left",
    )
    for index, column in enumerate(section.columns):
        numeric = all(isinstance(row[index], int | float | None) for row in section.rows)
        table.add_column(
            Text(column), justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis"
        )
    for row, style in zip(section.rows, section.styles, strict=True):
        cells = ("-" if cell is None else printable(str(cell)) for cell in row)
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table
