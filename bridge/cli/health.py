"""`outbox-bridge health`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import exit_codes
from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output, moment
from bridge.errors import ConfigurationError, OutboxError

if TYPE_CHECKING:
    from bridge.settings import Settings


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: `state` is ok, warning, failed or skipped."""

    name: str
    state: str
    detail: str


class Probe(StrEnum):
    """What a running relay can be asked."""

    LIVE = "live"
    READY = "ready"
    STARTED = "started"


_PAGES = {Probe.LIVE: "/livez", Probe.READY: "/readyz", Probe.STARTED: "/startupz"}


def health(
    probe: Annotated[
        Probe | None,
        typer.Argument(
            help="Ask a running relay at its port instead, as Kubernetes would.",
            show_default=False,
        ),
    ] = None,
    *,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="With a probe: where the relay serves (else http.host and http.port).",
        ),
    ] = None,
    require_relay: Annotated[
        bool, typer.Option("--require-relay", help="Fail where no relay lives.")
    ] = False,
    max_wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Fail where a message has been waiting for longer."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=60, help="Limit for each part to answer.")
    ] = 5.0,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Check that database, schema and Kafka are reachable, and tell which relays live.

    Exits with 0 where all is well and with 1 where a check failed. That no relay lives is only a
    warning, since a relay may also run now and then (`relay --once`), unless --require-relay. So is
    a pause of all destinations.

    With `live`, `ready` or `started` nothing is checked from here: the relay that serves http.port
    is asked, for probes of images that have neither shell nor curl. Exits with 0 for its yes.

    Examples:
      outbox-bridge health
      outbox-bridge health --require-relay --max-wait 60 --json
      outbox-bridge health live --url http://127.0.0.1:9464
    """
    if probe is not None:
        _ask(probe, url or _own_url(config), timeout, as_json=json)
        return
    if url is not None:
        raise typer.BadParameter("--url goes with live, ready or started", param_hint="--url")
    settings = settings_from(config, database_url=database_url, schema=schema)
    checks = _check_database(settings, timeout, require_relay=require_relay, max_wait=max_wait)
    checks.append(_attempt("kafka", lambda: _check_kafka(settings, timeout)))
    is_healthy = all(check.state != "failed" for check in checks)
    output = Output(as_json=json)
    if json:
        output.json({"healthy": is_healthy, "checks": checks})
    else:
        output.table(
            ["check", "state", "detail"], [[one.name, one.state, one.detail] for one in checks]
        )
    if not is_healthy:
        raise typer.Exit(exit_codes.FAILURE)


def _own_url(config: Path | None) -> str:
    """Return where the relay with these settings serves, for a process beside it."""
    http = settings_from(config).http
    if not http.port:
        raise ConfigurationError(
            "http.port is not set, or any free one: name the relay's address with --url, "
            "or set OUTBOX_BRIDGE_HTTP_PORT"
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104 - read, not bound
    return f"http://[{host}]:{http.port}" if ":" in host else f"http://{host}:{http.port}"


def _ask(probe: Probe, url: str, timeout: float, *, as_json: bool) -> None:
    """Ask a relay and show its answer; exits with 1 where it says no, or nothing."""
    from bridge.cli.probe import ask  # noqa: PLC0415 - slow to import

    is_well, text = ask(url, _PAGES[probe], timeout)
    output = Output(as_json=as_json)
    if as_json:
        output.json({"healthy": is_well, "answer": text.splitlines()})
    else:
        output.text(text)
    if not is_well:
        raise typer.Exit(exit_codes.FAILURE)


def _attempt(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except OutboxError as error:
        return Check(name, "failed", str(error))


def _check_database(
    settings: Settings, timeout: float, *, require_relay: bool, max_wait: float | None
) -> list[Check]:
    from bridge.database.migrations import Migrator  # noqa: PLC0415 - slow to import
    from bridge.database.reading import reading, translated  # noqa: PLC0415 - likewise
    from bridge.monitor import RelayState, relays, snapshot  # noqa: PLC0415 - likewise
    from bridge.switches import list_switches  # noqa: PLC0415 - likewise

    name = settings.database.schema_name
    checks: list[Check] = []

    def check_schema() -> Check:
        with translated(name):
            Migrator(conn, name).verify()
        return Check("schema", "ok", f'"{name}" is what this version needs')

    def check_relays() -> Check:
        with translated(name):
            registered = relays(conn, name)
        living = [one.relay_name for one in registered if one.state is RelayState.LIVING]
        if living:
            return Check("relays", "ok", f"{len(living)} living: {', '.join(living)}")
        return Check("relays", "failed" if require_relay else "warning", "no relay lives")

    def check_switches() -> Check:
        with translated(name):
            stops = [one for one in list_switches(conn, name) if one.is_stop_of_all]
        if not stops:
            return Check("switches", "ok", "sending is not paused")
        (stop,) = stops
        since = moment(stop.changed_at)
        why = f"all destinations are paused by {stop.changed_by} since {since}: {stop.reason}"
        return Check("switches", "warning", why)

    def check_wait(limit: float) -> Check:
        with translated(name):
            oldest = snapshot(conn, name).oldest_unsent_seconds or 0.0
        state = "ok" if oldest <= limit else "failed"
        return Check("wait", state, f"the oldest unsent message waits for {oldest:.1f} s")

    try:
        with reading(
            settings.database_url, name, stage="health", connect_timeout=max(2, round(timeout))
        ) as conn:
            conn.execute("select set_config('statement_timeout', %s, false)", [f"{timeout}s"])
            server = conn.info.parameter_status("server_version")
            checks.append(Check("database", "ok", f"PostgreSQL {server}"))
            checks.append(_attempt("schema", check_schema))
            if checks[-1].state == "ok":
                checks.append(_attempt("relays", check_relays))
                checks.append(_attempt("switches", check_switches))
                if max_wait is not None:
                    checks.append(_attempt("wait", lambda: check_wait(max_wait)))
    except OutboxError as error:
        checks.append(Check("database", "failed", str(error)))
    known = {check.name for check in checks}
    wanted = ["database", "schema", "relays", "switches"]
    wanted += ["wait"] if max_wait is not None else []
    checks += [Check(one, "skipped", "see above") for one in wanted if one not in known]
    return checks


def _check_kafka(settings: Settings, timeout: float) -> Check:
    from bridge.kafka.producer import (  # noqa: PLC0415 - slow to import
        check_reachable,
        create_producer,
        producer_settings,
    )

    servers = settings.kafka.require_bootstrap_servers()
    producer = create_producer(
        producer_settings(servers, settings.kafka.properties, "outbox-bridge-health"),
        on_error=lambda _error: None,
    )
    brokers = check_reachable(producer, timeout)
    return Check("kafka", "ok", f"{brokers} broker{'s' if brokers != 1 else ''} at {servers}")
