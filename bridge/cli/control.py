"""`outbox-bridge pause`, `resume`, `limit`, `batch`, `quiet` and `switches`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli.actor import ActorOption, ReasonOption, actor_name
from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment
from bridge.cli.switch_table import SWITCH_NAMES, switch_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    import psycopg

    from bridge.switches import Change, SwitchView

DestinationArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[DESTINATION]", help="One destination; without it all.", show_default=False
    ),
]
OffOption = Annotated[bool, typer.Option("--off", help="Take the switch off.")]


def pause(
    destination: DestinationArgument = None,
    *,
    reason: ReasonOption,
    by: ActorOption = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Stop sending: to one destination, or without DESTINATION to all.

    Rows stay PENDING and writers go on. What relays have claimed already is still sent; nothing
    more is claimed from about half a second later on, until `resume`, restarts included.

    Examples:
      outbox-bridge pause orders --reason "consumer is being migrated"
      outbox-bridge pause --reason "incident 4711"
    """
    from bridge.switches import pause as action  # noqa: PLC0415 - after the options are checked

    _run(
        lambda conn, name, who: action(conn, destination, reason=reason, actor=who, schema=name),
        by,
        (config, database_url, schema),
        json=json,
    )


def resume(
    destination: DestinationArgument = None,
    *,
    reason: ReasonOption,
    by: ActorOption = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Take a pause back: that of one destination, or without DESTINATION that of all.

    The two are independent: a destination sends when neither it nor all are paused. What still
    holds it back afterwards is named.

    Examples:
      outbox-bridge resume orders --reason "migration done"
      outbox-bridge resume --reason "incident closed"
    """
    from bridge.switches import resume as action  # noqa: PLC0415 - after the options are checked

    _run(
        lambda conn, name, who: action(conn, destination, reason=reason, actor=who, schema=name),
        by,
        (config, database_url, schema),
        json=json,
    )


def limit(
    destination: DestinationArgument = None,
    *,
    rows_per_second: Annotated[
        int | None, typer.Option("--rows-per-second", metavar="N", help="Rows a second.")
    ] = None,
    off: OffOption = False,
    reason: ReasonOption,
    by: ActorOption = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Limit the rows a second of a destination, over all relays together.

    Without DESTINATION it is one common limit, shared by all destinations that have none of their
    own. --off takes it off.

    Examples:
      outbox-bridge limit orders --rows-per-second 200 --reason "consumer is slow today"
      outbox-bridge limit orders --off --reason "consumer has caught up"
    """
    _check_one("--rows-per-second", rows_per_second, off=off)
    from bridge.switches import limit as action  # noqa: PLC0415 - after the options are checked

    _run(
        lambda conn, name, who: action(
            conn,
            destination,
            rows_per_second=rows_per_second,
            reason=reason,
            actor=who,
            schema=name,
        ),
        by,
        (config, database_url, schema),
        json=json,
    )


def batch(
    destination: DestinationArgument = None,
    *,
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", help="Rows of a destination in one claim.")
    ] = None,
    off: OffOption = False,
    reason: ReasonOption,
    by: ActorOption = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Limit how many rows of a destination a relay takes in one claim.

    It can only lower what relay.batch_rows allows; --off takes it off.

    Examples:
      outbox-bridge batch orders --rows 50 --reason "large messages today"
      outbox-bridge batch orders --off --reason "back to normal"
    """
    _check_one("--rows", rows, off=off)
    from bridge.switches import batch as action  # noqa: PLC0415 - after the options are checked

    _run(
        lambda conn, name, who: action(
            conn, destination, rows=rows, reason=reason, actor=who, schema=name
        ),
        by,
        (config, database_url, schema),
        json=json,
    )


def quiet(
    destination: DestinationArgument = None,
    *,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar='"FROM-TO ZONE"',
            help="Daily window, such as 23:00-06:00 Asia/Tokyo.",
        ),
    ] = None,
    off: OffOption = False,
    reason: ReasonOption,
    by: ActorOption = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Send nothing within a daily window, by the clock on the wall of a time zone.

    The window follows summer time: what counts is the local time there. --off takes it off.

    Examples:
      outbox-bridge quiet push --window "23:00-06:00 Asia/Tokyo" --reason "do not wake people"
      outbox-bridge quiet push --off --reason "campaign over"
    """
    _check_one("--window", window, off=off)
    from bridge.switches import quiet as action  # noqa: PLC0415 - after the options are checked

    _run(
        lambda conn, name, who: action(
            conn, destination, window=window, reason=reason, actor=who, schema=name
        ),
        by,
        (config, database_url, schema),
        json=json,
    )


def switches(
    *,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """List the switches that are set: for what, by whom, since when and why.

    Examples:
      outbox-bridge switches
      outbox-bridge switches --json | jq '.switches[] | select(.switch == "paused")'
    """
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.switches import list_switches  # noqa: PLC0415 - likewise

    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    with reading(settings.database_url, name) as conn:
        found = list_switches(conn, name)
    output = Output(as_json=json)
    if json:
        output.json({"switches": found})
    elif found:
        switch_table(output, found)
    else:
        output.line("No switch is set.")


def _check_one(option: str, value: object, *, off: bool) -> None:
    if (value is None) is not off:
        raise typer.BadParameter(f"give either {option} or --off", param_hint=option)


def _run(
    act: Callable[[psycopg.Connection[Any], str, str], Change],
    by: str | None,
    given: tuple[Path | None, str | None, str | None],
    *,
    json: bool,
) -> None:
    from bridge.database.reading import reading  # noqa: PLC0415 - after the options are checked
    from bridge.switches import list_switches  # noqa: PLC0415 - likewise

    config, database_url, schema = given
    settings = settings_from(config, database_url=database_url, schema=schema)
    name = settings.database.schema_name
    actor = actor_name(by)
    with reading(settings.database_url, name) as conn:
        change = act(conn, name, actor)
        now_set = list_switches(conn, name)
    related = [one for one in now_set if _concerns(one, change)]
    output = Output(as_json=json)
    if json:
        output.json({**_document(change), "switches": related})
        return
    output.line(_sentence(change))
    for one in related:
        if one.destination != change.destination or one.switch != change.switch:
            output.line(f"  also set: {_shown(one)}")
        elif not change.changed:
            output.line(f"  by {one.changed_by} since {moment(one.changed_at)}: {one.reason}")


def _concerns(one: SwitchView, change: Change) -> bool:
    """Whether a switch has a say in what the changed one does: any for all, every one for `*`."""
    return one.destination in (change.destination, "*") or (
        change.destination == "*" and one.switch == change.switch
    )


def _document(change: Change) -> dict[str, object]:
    return {
        "destination": change.destination,
        "switch": change.switch,
        "changed": change.changed,
        "before": change.before,
        "after": change.after,
    }


def _target(destination: str) -> str:
    return "all destinations" if destination == "*" else destination


def _shown(one: SwitchView) -> str:
    setting = "" if one.switch == "paused" else f" {one.setting}"
    return (
        f"{_target(one.destination)}: {SWITCH_NAMES[one.switch]}{setting}, by {one.changed_by} "
        f"since {moment(one.changed_at)}: {one.reason}"
    )


def _sentence(change: Change) -> str:
    target = _target(change.destination)
    if change.switch == "paused":
        if change.changed:
            return f"{target}: {'paused' if change.after else 'resumed'}"
        return f"{target}: {'paused already' if change.after else 'not paused, nothing to resume'}"
    name = SWITCH_NAMES[change.switch]
    after = "none" if change.after is None else str(change.after)
    if not change.changed:
        return f"{target}: {name} {after} already, nothing to change"
    before = "none" if change.before is None else str(change.before)
    return f"{target}: {name} {after} (was {before})"
