"""`outbox-bridge demo`: the whole thing in a minute."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bridge.cli import exit_codes
from bridge.cli.options import ConfigOption, JsonOption, settings_from
from bridge.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.demo.verdict import Check
    from bridge.settings import Settings

_FEWEST_MESSAGES = 100
_MESSAGES = 20_000
_FEWEST_ORDERS = 20
_ORDERS = 200


def demo(
    *,
    scenario: Annotated[
        Literal["relay", "shop"],
        typer.Option("--scenario", help="What to see: the relay under load, or a whole shop."),
    ] = "relay",
    messages: Annotated[
        int | None,
        typer.Option(
            "--messages",
            metavar="N",
            min=_FEWEST_MESSAGES,
            help=f"How many messages to send (relay; default {_MESSAGES:,}).",
        ),
    ] = None,
    orders: Annotated[
        int | None,
        typer.Option(
            "--orders",
            metavar="N",
            min=_FEWEST_ORDERS,
            help=f"How many orders the busy hour has (shop; default {_ORDERS}).",
        ),
    ] = None,
    console: Annotated[
        bool,
        typer.Option(
            "--console",
            help="Stay until Ctrl-C: real traffic, failures on purpose, and the console on it.",
        ),
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            metavar="N",
            help="With --console: its port; 0: a free one.",
        ),
    ] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder with data and logs, and say where.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """See a shop, two relays and a consumer at work, on a private PostgreSQL and Kafka.

    The shop writes orders and their messages in one transaction each; some are rolled back, some
    enqueued twice. One relay is killed with SIGKILL while it has rows in flight, and started again.
    The consumer is idempotent by the message's key.

    With --scenario shop: an order service, a payment service, a notification service and a payment
    API, each a process of its own with a database of its own. First the payment API is called
    inside the order's transaction, and charges what is rolled back; then the same with the outbox,
    while processes are killed and the API charges without answering. Ends with one order's trace.

    Exit code 0 only if nothing was lost and every number adds up; else 1, and the wrong sum is
    named. Kafka is the real one where Java and Maven are installed, else librdkafka's mock cluster:
    OUTBOX_BRIDGE_LOCAL_KAFKA=real|mock decides.

    Examples:
      outbox-bridge demo
      outbox-bridge demo --messages 200000 --keep
      outbox-bridge demo --scenario shop
      outbox-bridge demo --console
    """
    _check_options(scenario, messages, orders)
    if console and scenario != "relay":
        raise typer.BadParameter(f"the scenario {scenario} has no console", param_hint="--console")
    settings = settings_from(config)
    output = Output(as_json=as_json)
    if console:
        _show(settings, output, keep=keep, port=port)
        return
    try:
        if scenario == "shop":
            checks, kept = _shop(settings, output, orders=orders or _ORDERS, keep=keep)
            moral = "Every order was charged once, and nothing was charged that is no order."
        else:
            checks, kept = _relay(settings, output, messages=messages or _MESSAGES, keep=keep)
            moral = "Nothing was lost, and every number adds up."
    except KeyboardInterrupt:
        output.note("interrupted; everything that was started has ended")
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    sys.stdout.flush()
    if kept is not None:
        output.note(f"data and logs are in {kept}")
    _conclude(output, checks, moral)
    if scenario == "relay" and not as_json:
        output.note(
            "To look at one in a browser, with failures on purpose: "
            "outbox-bridge demo --console (make demo CONSOLE=1)"
        )


def _check_options(scenario: str, messages: int | None, orders: int | None) -> None:
    strange = {"shop": ("--messages", messages), "relay": ("--orders", orders)}[scenario]
    if strange[1] is not None:
        raise typer.BadParameter(
            f"the scenario {scenario} has no {strange[0]}", param_hint=strange[0]
        )


def _relay(
    settings: Settings, output: Output, *, messages: int, keep: bool
) -> tuple[Sequence[Check], Path | None]:
    # Load Kafka's client and more; `--help` must not wait for them.
    from bridge.demo.report import document, table  # noqa: PLC0415 - see above
    from bridge.demo.scenario import run_demo  # noqa: PLC0415 - see above
    from bridge.demo.screen import open_screen  # noqa: PLC0415 - see above

    with open_screen(sys.stderr) as screen:
        result = run_demo(settings, messages=messages, keep=keep, screen=screen)
    if output.as_json:
        output.json(document(result.figures, result.checks, result.kept))
    else:
        output.pairs(table(result.figures))
    return result.checks, result.kept


def _shop(
    settings: Settings, output: Output, *, orders: int, keep: bool
) -> tuple[Sequence[Check], Path | None]:
    from bridge.demo.screen import open_screen  # noqa: PLC0415 - as above
    from bridge.demo.shop.report import (  # noqa: PLC0415 - as above
        COLUMNS,
        circumstances,
        comparison,
        document,
    )
    from bridge.demo.shop.scenario import ACTS, run_shop  # noqa: PLC0415 - as above

    with open_screen(sys.stderr, ACTS) as screen:
        result = run_shop(settings, orders=orders, keep=keep, screen=screen)
    if output.as_json:
        output.json(document(result.figures, result.checks, result.tree, result.kept))
    else:
        output.line("One order, from its transaction to its notification:")
        output.line()
        for line in result.tree:
            output.line(line)
        output.line()
        output.table(COLUMNS, comparison(result.figures))
        output.line()
        output.pairs(circumstances(result.figures))
    return result.checks, result.kept


def _conclude(output: Output, checks: Sequence[Check], moral: str) -> None:
    wrong = [check for check in checks if not check.holds]
    for check in wrong:
        output.note(f"WRONG: {check.text}")
    if wrong:
        raise typer.Exit(exit_codes.FAILURE)
    output.note(moral)


def _show(settings: Settings, output: Output, *, keep: bool, port: int) -> None:
    """Play the demo that stays."""
    from bridge.demo.screen import open_screen  # noqa: PLC0415 - as above
    from bridge.demo.showcase import run_showcase  # noqa: PLC0415 - as above

    try:
        with open_screen(sys.stderr) as screen:
            run_showcase(settings, keep=keep, port=port, screen=screen)
    except KeyboardInterrupt:
        output.note("everything that was started has ended")
