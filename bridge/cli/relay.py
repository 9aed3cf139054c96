"""`outbox-bridge relay`: send the outbox to Kafka."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Annotated

import typer

from bridge.cli import exit_codes
from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output
from bridge.cli.traces import start_traces

_M_ARENA_MAX = -8
"""An option of mallopt(3)."""


def relay(
    *,
    until_empty: Annotated[
        bool,
        typer.Option(
            "--until-empty",
            help="End when no row is due and all are settled. Rows for later stay.",
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Claim one batch, send it, end (for cron).")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="With --once: at most N rows."),
    ] = None,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="HOST:PORT,…",
            help="Kafka brokers (else OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS).",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name shown in locked_by and pg_stat_activity (host and pid)."),
    ] = None,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Claim due rows, publish them to Kafka, mark them SENT after the broker's acknowledgement.

    Runs until SIGTERM or SIGINT: then it claims nothing more, awaits and settles what is in flight
    and gives the rest back. A second signal forces the end. Start as many relays as you like.

    OpenTelemetry's OTEL_* variables switch traces on, such as OTEL_EXPORTER_OTLP_ENDPOINT.

    Exit code 0 after a clean end, also where messages FAILED; 1 when the end was forced or the
    relay could not go on.

    Examples:
      outbox-bridge relay
      outbox-bridge relay --until-empty
      outbox-bridge relay --once --limit 100
    """
    if limit is not None and not once:
        raise typer.BadParameter("--limit goes with --once", param_hint="--limit")
    if once and until_empty:
        raise typer.BadParameter("choose one of --once and --until-empty", param_hint="--once")
    settings = settings_from(
        config,
        database_url=database_url,
        schema=schema,
        overrides={"kafka": {"bootstrap_servers": bootstrap_servers}, "relay": {"name": name}},
    )
    # Loads the Kafka client; `--help` must not wait for it.
    from bridge.relay.supervisor import run_relay  # noqa: PLC0415 - see above
    from bridge.settings import is_color_wanted  # noqa: PLC0415 - see above
    from bridge.telemetry.logging import configure_logging  # noqa: PLC0415 - see above

    configure_logging(settings.log.level, settings.log.format, colors=is_color_wanted())
    tracing = start_traces("outbox-bridge-relay")
    _spare_the_collector()
    _share_one_heap()
    report = run_relay(
        settings,
        until_empty=until_empty,
        once=once,
        limit=limit,
        flush=tracing.close if tracing is not None else None,
    )
    output = Output(as_json=as_json)
    if as_json:
        output.json(report.as_dict())
    elif until_empty or once:
        output.note(
            f"sent {report.sent}, failed {report.failed}, retried later {report.retried}, "
            f"waiting for a later time {report.later}"
        )
    if report.forced:
        raise typer.Exit(exit_codes.FAILURE)


def _spare_the_collector() -> None:
    """Keep the cycle collector off the hot path.

    What was imported stays for ever, and the objects made per row hang in no cycles; without this
    each full collection would walk all of it, several times a second under load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _share_one_heap() -> None:
    """Let all threads take memory from one arena of glibc.

    One thread allocates a record and another frees it. With an arena for each thread that takes
    more CPU, and what one freed is of no use to the other. Other C libraries have no such setting.
    """
    import ctypes  # noqa: PLC0415 - `--help` must not wait for it

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
