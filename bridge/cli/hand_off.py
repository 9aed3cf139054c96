"""`outbox-bridge hand-off`: messages of a topic, each as a request to an HTTP API."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from bridge.cli.options import ConfigOption, JsonOption, settings_from
from bridge.cli.output import Output
from bridge.cli.traces import start_traces
from bridge.errors import ConfigurationError

_FLUSH = 5.0
"""Seconds that the end waits for traces to be sent."""


def hand_off(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics to consume.")],
    *,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The API that is called.")],
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="Kafka group; also names the inbox rows.")
    ],
    events: Annotated[
        str,
        typer.Option("--events", metavar="PATTERN", help="Event types to hand over; skip others."),
    ] = "*",
    dead_letter: Annotated[
        str | None,
        typer.Option(
            "--dead-letter",
            metavar="TOPIC",
            help="Gets what the API refuses; without it such a message holds up its key.",
        ),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="HTTP method.")] = "POST",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="'NAME: VALUE'", help="Sent along; may be repeated."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="For each request.")
    ] = 10.0,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, metavar="N", help="Charged tries of a message.")
    ] = 10,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, metavar="N", help="Requests at a time.")
    ] = 8,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="HOST:PORT,…",
            help="Kafka brokers (else OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS).",
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call an HTTP API once for each message, with its key as Idempotency-Key.

    Runs until SIGTERM or SIGINT; with --json it then says what became of how many. 429 and 503 wait
    as Retry-After says and cost no attempt, nor does an API that cannot be reached or refuses the
    credentials; other 5xx and lost answers are tried again with the same key; other 4xx go to the
    dead-letter topic.

    With OUTBOX_BRIDGE_HANDOFF_INBOX_URL (a database with `migrate up --set inbox`) messages that
    were handed over before make no second request. OUTBOX_BRIDGE_HANDOFF_AUTHORIZATION is the value
    of the header Authorization; both may stand under [handoff] in the settings file.

    OpenTelemetry's OTEL_* variables switch traces on, such as OTEL_EXPORTER_OTLP_ENDPOINT.

    Examples:
      outbox-bridge hand-off payments --url https://api.example.net/charges --group charge
      outbox-bridge hand-off orders --url … --group crm --events 'order.*' --dead-letter orders.dead
    """
    settings = settings_from(config, overrides={"kafka": {"bootstrap_servers": bootstrap_servers}})
    # Load the Kafka and the HTTP client; `--help` must not wait for them.
    from bridge.consumer import Consumer, Inbox, RetryPolicy  # noqa: PLC0415 - see above
    from bridge.consumer.hand_off import HandOff  # noqa: PLC0415 - see above
    from bridge.consumer.security import aiokafka_security  # noqa: PLC0415 - see above
    from bridge.settings import is_color_wanted  # noqa: PLC0415 - see above
    from bridge.telemetry.logging import configure_logging  # noqa: PLC0415 - see above

    configure_logging(settings.log.level, settings.log.format, colors=is_color_wanted())
    # Joins and leaves groups in many words.
    logging.getLogger("aiokafka").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    headers = dict(_header(text) for text in header or ())
    if settings.handoff.authorization is not None:
        headers["Authorization"] = settings.handoff.authorization.get_secret_value()
    inbox = None
    if settings.handoff.inbox_url is not None:
        inbox = Inbox(
            settings.handoff.inbox_url.get_secret_value(), schema=settings.handoff.inbox_schema
        )
    consumer = Consumer(
        *topics,
        group=group,
        bootstrap_servers=settings.kafka.require_bootstrap_servers(),
        inbox=inbox,
        concurrency=concurrency,
        dead_letter_topic=dead_letter,
        retry=RetryPolicy(attempts=attempts, base=0.5, cap=300.0),
        handler_timeout=None,
        kafka=aiokafka_security(settings.kafka.properties),
        trace_as_child=True,
    )
    HandOff(url, method=method, headers=headers, timeout=timeout).attach(consumer, events)
    tracing = start_traces("outbox-bridge-hand-off")
    try:
        consumer.run()
    finally:
        if tracing is not None:
            tracing.close(_FLUSH)
    if as_json:
        Output(as_json=True).json(consumer.counts)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigurationError(f"--header {text!r} is not 'NAME: VALUE'")
    return name.strip(), value.strip()
