"""`outbox-bridge demo`: the whole thing in a minute."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import exit_codes
from bridge.cli.options import ConfigOption, JsonOption, settings_from
from bridge.cli.output import Output

if TYPE_CHECKING:
    from bridge.settings import Settings

_FEWEST_MESSAGES = 100


def demo(
    *,
    messages: Annotated[
        int,
        typer.Option(
            "--messages", metavar="N", min=_FEWEST_MESSAGES, help="How many messages to send."
        ),
    ] = 20_000,
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

    Exit code 0 only if nothing was lost and every number adds up; else 1, and the wrong sum is
    named. Kafka is the real one where Java and Maven are installed, else librdkafka's mock cluster:
    OUTBOX_BRIDGE_LOCAL_KAFKA=real|mock decides.

    Examples:
      outbox-bridge demo
      outbox-bridge demo --messages 200000 --keep
      outbox-bridge demo --console
    """
    settings = settings_from(config)
    # Load Kafka's client and more; `--help` must not wait for them.
    from bridge.demo.report import document, table  # noqa: PLC0415 - see above
    from bridge.demo.scenario import run_demo  # noqa: PLC0415 - see above
    from bridge.demo.screen import open_screen  # noqa: PLC0415 - see above
    from bridge.demo.verdict import failed  # noqa: PLC0415 - see above

    output = Output(as_json=as_json)
    if console:
        _show(settings, output, keep=keep, port=port)
        return
    try:
        with open_screen(sys.stderr) as screen:
            result = run_demo(settings, messages=messages, keep=keep, screen=screen)
    except KeyboardInterrupt:
        output.note("interrupted; everything that was started has ended")
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    if as_json:
        output.json(document(result.figures, result.checks, result.kept))
    else:
        output.pairs(table(result.figures))
    sys.stdout.flush()
    if result.kept is not None:
        output.note(f"data and logs are in {result.kept}")
    wrong = failed(result.checks)
    for check in wrong:
        output.note(f"WRONG: {check.text}")
    if wrong:
        raise typer.Exit(exit_codes.FAILURE)
    output.note("Nothing was lost, and every number adds up.")
    if not as_json:
        output.note(
            "To look at one in a browser, with failures on purpose: "
            "outbox-bridge demo --console (make demo CONSOLE=1)"
        )


def _show(settings: Settings, output: Output, *, keep: bool, port: int) -> None:
    """Play the demo that stays."""
    from bridge.demo.screen import open_screen  # noqa: PLC0415 - as above
    from bridge.demo.showcase import run_showcase  # noqa: PLC0415 - as above

    try:
        with open_screen(sys.stderr) as screen:
            run_showcase(settings, keep=keep, port=port, screen=screen)
    except KeyboardInterrupt:
        output.note("everything that was started has ended")
