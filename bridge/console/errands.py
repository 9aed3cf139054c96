"""Actions as the console offers them: their names, what each does, and how a form orders one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge import operations
from bridge.errors import InvalidOperationError
from bridge.operations import Action, Actor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import psycopg

    from bridge.operations import Outcome, Selection

SOURCE = "console"
_MOST_ROWS_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Errand:
    """One action for people: `verb` on buttons, `done` of rows, and what it means."""

    action: Action
    verb: str
    done: str
    meaning: str


ERRANDS: dict[str, Errand] = {
    one.action.command: one
    for one in (
        Errand(
            Action.RETRY,
            "Retry",
            "set to PENDING again",
            "The same row goes out again with the same key, all its attempts anew.",
        ),
        Errand(
            Action.CANCEL,
            "Cancel",
            "cancelled",
            "The row is withdrawn for good. A record that Kafka has already cannot be called back.",
        ),
        Errand(
            Action.SEND_NOW,
            "Send now",
            "made due",
            "A row that waits for a later time becomes due at once.",
        ),
        Errand(
            Action.RELEASE,
            "Release",
            "released",
            "Rows in the hands of a dead relay become PENDING again, without a charged attempt.",
        ),
        Errand(
            Action.REPLAY,
            "Replay",
            "to be sent once more",
            "A row that was SENT goes out once more: the same key, with the header "
            "outbox-replay-id, behind everything that was sent since.",
        ),
        Errand(
            Action.SKIP,
            "Skip",
            "skipped",
            "Later rows of the held key go on without this one, which stays what it is.",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a form says beyond selection and reason."""

    keep_retry_count: bool = False
    rows_per_second: float = 100.0

    @classmethod
    def parse(cls, form: Mapping[str, Any]) -> Options:
        """Read a form's fields. Raises InvalidOperationError."""
        text = str(form.get("rows_per_second") or "100").strip()
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate <= _MOST_ROWS_PER_SECOND:
            raise InvalidOperationError(f"rows a second: {text!r} is no number above 0")
        return cls(form.get("keep_retry_count") == "yes", rate)


def run_errand(
    errand: Errand,
    conn: psycopg.Connection[Any],
    selection: Selection,
    options: Options,
    *,
    reason: str,
    login: str,
    key: str,
    schema: str,
    on_batch: Callable[[Outcome], None],
) -> Outcome:
    """Do it. Raises what `bridge.operations` raises."""
    actor = Actor(login, SOURCE, key)
    common: dict[str, Any] = {
        "reason": reason,
        "actor": actor,
        "schema": schema,
        "on_batch": on_batch,
    }
    match errand.action:
        case Action.RETRY:
            return operations.retry(
                conn, selection, keep_retry_count=options.keep_retry_count, **common
            )
        case Action.CANCEL:
            return operations.cancel(conn, selection, **common)
        case Action.SEND_NOW:
            return operations.send_now(conn, selection, **common)
        case Action.RELEASE:
            return operations.release(conn, selection, **common)
        case Action.REPLAY:
            return operations.replay(
                conn, selection, rows_per_second=options.rows_per_second, **common
            )
        case Action.SKIP:
            return operations.skip(conn, selection, **common)
        case Action.EDIT:
            raise InvalidOperationError("rows are edited on the command line: outbox-bridge edit")
