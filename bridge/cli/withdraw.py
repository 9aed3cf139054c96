"""`outbox-bridge cancel`, `skip` and `release`: take rows out of the way."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from bridge.cli.row_command import Asked, row_command


@row_command
def cancel(asked: Asked) -> None:
    """Withdraw PENDING or FAILED rows for good.

    A record that was handed to Kafka cannot be called back: the command says of which rows that may
    be. What a row held back goes on.

    Examples:
      outbox-bridge cancel 4711 --reason "order was a test"
      outbox-bridge cancel --status pending --key "order-17-*" --dry-run --reason "customer left"
    """
    from bridge.cli.row_action import run_action  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Action  # noqa: PLC0415 - likewise
    from bridge.operations import cancel as act  # noqa: PLC0415 - likewise

    run_action(asked, Action.CANCEL, act)


@row_command
def skip(asked: Asked) -> None:
    """Let what a row holds back go on without it: the head of a held ordering key.

    The row stays what it is, FAILED or waiting for its next attempt. `outbox-bridge keys` lists
    held keys and the rows that hold them.

    Examples:
      outbox-bridge skip 4711 --reason "later events make it obsolete"
      outbox-bridge skip --destination orders --ordering-key order-17 --yes --reason "as agreed"
    """
    from bridge.cli.row_action import run_action  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Action  # noqa: PLC0415 - likewise
    from bridge.operations import skip as act  # noqa: PLC0415 - likewise

    run_action(asked, Action.SKIP, act)


@row_command
def release(
    asked: Asked,
    *,
    stuck_for: Annotated[
        int | None,
        typer.Option(
            "--stuck-for",
            metavar="MINUTES",
            min=1,
            help="Also from relays that live, where the claim is older than this.",
        ),
    ] = None,
) -> None:
    """Take PROCESSING rows back from a dead relay; nothing is charged.

    Relays do the same by themselves within seconds; this is for when none runs that could. A row of
    a relay that lives is refused, unless --stuck-for is given and it is older than that.

    Examples:
      outbox-bridge release --status processing --dry-run --reason "host is gone"
      outbox-bridge release 4711 4712 --reason "host is gone"
      outbox-bridge release --status processing --stuck-for 45 --yes --reason "relay hangs"
    """
    from bridge.cli.row_action import run_action  # noqa: PLC0415 - after the options are checked
    from bridge.operations import Action  # noqa: PLC0415 - likewise
    from bridge.operations import release as act  # noqa: PLC0415 - likewise

    run_action(
        asked,
        Action.RELEASE,
        partial(act, stuck_minutes=stuck_for),
        options={} if stuck_for is None else {"stuck_minutes": stuck_for},
    )
