"""Runs an action on rows for the command line: look, ask, do, tell."""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import typer

from bridge.cli import exit_codes
from bridge.cli.actor import actor_name
from bridge.cli.options import settings_from
from bridge.cli.output import Output, moment
from bridge.database.reading import reading
from bridge.errors import InvalidOperationError, OperationError
from bridge.operations import (
    Action,
    Actor,
    ChangedRow,
    Outcome,
    Preview,
    TargetRow,
    preview,
)
from bridge.reason import checked_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.cli.row_command import Asked
    from bridge.settings import Settings

_PROGRESS_INTERVAL = 2.0
_SHOWN_REFUSALS = 20
_DONE = {
    Action.RETRY: "retried",
    Action.CANCEL: "cancelled",
    Action.SEND_NOW: "made due",
    Action.RELEASE: "released",
    Action.REPLAY: "replayed",
    Action.SKIP: "skipped",
    Action.EDIT: "edited",
}


Act: TypeAlias = "Callable[..., Outcome]"
"""One of the functions of `bridge.operations`, its own options filled in."""


def run_action(
    asked: Asked,
    action: Action,
    act: Act,
    *,
    settings: Settings | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Do what was asked for and print what came of it.

    `options` are those that decide which rows fit, for the preview. Raises typer.Exit with 3 where
    a row named by id was left, OperationError where filters need `--yes`, and what `act` raises.
    """
    settings = settings or settings_from(
        asked.config, database_url=asked.database_url, schema=asked.schema
    )
    name = settings.database.schema_name
    selection = asked.selection()
    selection.check(action)
    reason = _reason(asked)
    actor = Actor(actor_name(asked.by), "cli", uuid.uuid4().hex)
    output = Output(as_json=asked.json)
    with reading(settings.database_url, name) as conn:
        conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        if asked.dry_run or not selection.is_by_id:
            seen = preview(conn, action, selection, schema=name, options=options)
            if asked.dry_run:
                _show_preview(output, seen)
                return
            if seen.matched and not asked.yes:
                _ask(output, seen, asked.limit)
        progress = _Progress(output, action)
        try:
            outcome = act(
                conn,
                selection,
                reason=reason,
                actor=actor,
                schema=name,
                limit=asked.limit,
                on_batch=progress.tell,
            )
        except KeyboardInterrupt:
            _show_interrupted(output, progress.so_far)
            raise
    _show_outcome(output, outcome, by_id=selection.is_by_id)
    if selection.is_by_id and outcome.refused_count:
        raise typer.Exit(exit_codes.PRECONDITION)


def _reason(asked: Asked) -> str:
    """Return the reason; without one only a look is possible."""
    if asked.reason is None:
        if asked.dry_run:
            return ""
        raise InvalidOperationError("--reason is missing; say why in a few words")
    return checked_reason(asked.reason)


def _ask(output: Output, seen: Preview, limit: int | None) -> None:
    """Ask whether to go on; on no terminal refuse, since nobody can answer."""
    what = f"{_count(seen)} match, {_exposures(seen)}"
    if limit is not None:
        what += f"; at most {limit} of them are meant"
    if not sys.stdin.isatty():
        raise OperationError(
            f"{what}; nothing was changed: give --yes to {seen.action} them, or --dry-run to look"
        )
    output.note(what)
    if not typer.confirm(f"{seen.action.value} them?", err=True):
        raise OperationError("nothing was changed")


class _Progress:
    """Tells now and then how many rows are done, and remembers it for an interruption."""

    def __init__(self, output: Output, action: Action) -> None:
        self._output = output
        self._next = time.monotonic() + _PROGRESS_INTERVAL
        self.so_far = Outcome(action)

    def tell(self, so_far: Outcome) -> None:
        self.so_far = so_far
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_INTERVAL
            self._output.note(f"{so_far.changed} rows {_DONE[so_far.action]} so far")


def _show_interrupted(output: Output, so_far: Outcome) -> None:
    """Say what is done; the batch under way was rolled back."""
    if output.as_json:
        output.json({**_outcome_document(so_far), "interrupted": True})
    again = "run the same command again to go on"
    if so_far.replay_id is not None:
        again += f", with --replay-id {so_far.replay_id}"
    output.note(f"interrupted: {so_far.changed} rows {_DONE[so_far.action]}; {again}")


def _show_preview(output: Output, seen: Preview) -> None:
    if output.as_json:
        output.json(_preview_document(seen))
        return
    output.line(f"{seen.action.value}: {_count(seen)} would be changed, {_exposures(seen)}")
    if seen.by_destination:
        output.line()
        output.table(["destination", "rows"], [list(pair) for pair in seen.by_destination])
        output.line()
        output.table(
            ["id", "status", "destination", "type", "key", "created", "error", "Kafka"],
            [_example(row) for row in seen.examples],
        )
    for refusal in seen.refused:
        output.note(f"outbox_id {refusal.outbox_id}: {refusal.why}")
    output.note("nothing was changed (--dry-run)")


def _example(row: TargetRow) -> list[str | int | None]:
    return [
        row.outbox_id,
        row.status,
        row.destination,
        row.event_type,
        row.message_key,
        moment(row.created_at),
        row.last_error_code,
        row.exposure,
    ]


def _show_outcome(output: Output, outcome: Outcome, *, by_id: bool) -> None:
    if output.as_json:
        output.json(_outcome_document(outcome))
    else:
        if by_id and outcome.rows:
            output.table(
                ["id", "before", "after", "Kafka"],
                [[row.outbox_id, row.before, row.after, row.exposure] for row in outcome.rows],
            )
        output.line(f"{_plural(outcome.changed)} {_DONE[outcome.action]}{_summary(outcome)}")
        if outcome.replay_id is not None and outcome.changed:
            output.line(f"replay id {outcome.replay_id}")
    for refusal in outcome.refused[:_SHOWN_REFUSALS]:
        output.note(f"outbox-bridge: outbox_id {refusal.outbox_id}: {refusal.why}")
    more = outcome.refused_count - _SHOWN_REFUSALS
    if more > 0:
        output.note(f"outbox-bridge: {more} more rows were left as they are")


def _summary(outcome: Outcome) -> str:
    return f": {_exposures(outcome)}" if outcome.changed else ""


def _exposures(counts: Preview | Outcome) -> str:
    """Say of how many rows the record cannot be in Kafka, and of how many it may."""
    maybe = "sent before" if counts.action is Action.REPLAY else "may have been sent"
    return f"{counts.never_sent} never handed to Kafka, {counts.maybe_sent} {maybe}"


def _count(seen: Preview) -> str:
    return f"more than {seen.matched} rows" if seen.is_capped else _plural(seen.matched)


def _plural(rows: int) -> str:
    return f"{rows} row" if rows == 1 else f"{rows} rows"


def _preview_document(seen: Preview) -> dict[str, Any]:
    return {
        **asdict(seen),
        "dry_run": True,
        "action": seen.action.command,
        "by_destination": dict(seen.by_destination),
        "examples": [{**asdict(row), "kafka": row.exposure} for row in seen.examples],
        "refused": [refusal._asdict() for refusal in seen.refused],
    }


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    return {
        **asdict(outcome),
        "dry_run": False,
        "action": outcome.action.command,
        "rows": [_changed_document(row) for row in outcome.rows],
        "refused": [refusal._asdict() for refusal in outcome.refused],
    }


def _changed_document(row: ChangedRow) -> dict[str, Any]:
    return {**asdict(row), "kafka": row.exposure}
