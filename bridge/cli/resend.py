"""`outbox-bridge retry`, `send-now` and `replay`: let rows go out."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from bridge.cli.row_command import Asked, row_command


@row_command
def retry(
    asked: Asked,
    *,
    keep_retry_count: Annotated[
        bool,
        typer.Option("--keep-retry-count", help="Keep the count of charged attempts instead of 0."),
    ] = False,
) -> None:
    """Let FAILED rows try again, at once: the same row, the same key.

    All attempts begin anew, unless --keep-retry-count is given. What a failed row held back follows
    it. An acknowledgement of the earlier attempt that comes now marks nothing.

    Examples:
      outbox-bridge retry 4711 --reason "topic was recreated"
      outbox-bridge retry --error MESSAGE_TOO_LARGE --dry-run --reason "limit was raised"
      outbox-bridge retry --status failed --destination orders --yes --reason "incident 7 is over"
    """
    from bridge.cli.row_action import run_action  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Action  # noqa: PLC0415 - likewise
    from bridge.operations import retry as act  # noqa: PLC0415 - likewise

    run_action(asked, Action.RETRY, partial(act, keep_retry_count=keep_retry_count))


@row_command
def send_now(asked: Asked) -> None:
    """Make PENDING rows due that wait for a later time: a backoff, or their schedule.

    A pause, a rate limit, quiet hours and a held key still count.

    Examples:
      outbox-bridge send-now 4711 --reason "broker is back"
      outbox-bridge send-now --destination orders --error UNKNOWN --yes --reason "broker is back"
    """
    from bridge.cli.row_action import run_action  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Action  # noqa: PLC0415 - likewise
    from bridge.operations import send_now as act  # noqa: PLC0415 - likewise

    run_action(asked, Action.SEND_NOW, act)


@row_command
def replay(
    asked: Asked,
    *,
    rows_per_second: Annotated[
        float,
        typer.Option("--rows-per-second", metavar="N", help="How fast rows become due again."),
    ] = 100.0,
    replay_id: Annotated[
        str | None,
        typer.Option(
            "--replay-id", metavar="UUID", help="Go on with an earlier replay: leave its rows out."
        ),
    ] = None,
) -> None:
    """Send SENT rows once more: the same key, with the header outbox-replay-id.

    Consumers that know the idempotency key drop them; the header tells others apart. Replayed
    records come behind everything that was sent since, whatever their ordering key. The command
    runs as long as the replay takes; interrupted, it goes on with --replay-id.

    Examples:
      outbox-bridge replay 4711 --reason "consumer lost it"
      outbox-bridge replay --destination orders --since 2h --dry-run --reason "consumer was rebuilt"
    """
    from bridge.cli.row_action import run_action  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Action  # noqa: PLC0415 - likewise
    from bridge.operations import replay as act  # noqa: PLC0415 - likewise

    run_action(
        asked,
        Action.REPLAY,
        partial(act, replay_id=replay_id, rows_per_second=rows_per_second),
        options={"replay_id": replay_id},
    )
