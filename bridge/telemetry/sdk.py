"""OpenTelemetry's SDK in our own processes, set up by the SDK's own reading of OTEL_* variables."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_log = structlog.get_logger("bridge.telemetry")


class Tracing:
    """The traces of this process; `close` sends what is left of them."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def close(self, timeout: float) -> bool:
        """Export what waits and end; False when that took longer than `timeout` seconds.

        An exporter that does not answer goes on in a thread that ends with the process.
        """
        thread = threading.Thread(
            target=self._provider.shutdown, name="outbox-bridge-traces", daemon=True
        )
        began = time.monotonic()
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            _log.warning(
                "traces were not exported in time; the last ones are lost",
                waited_seconds=round(time.monotonic() - began, 1),
            )
        return not thread.is_alive()


def start_tracing() -> Tracing | None:
    """Set up the SDK as OTEL_* variables say, or take what is set up already; None where it fails.

    Call it where the variables ask for traces. A mistake in them, or an exporter that is not
    installed, is logged and leaves the process without traces: they must not keep it from its work.
    """
    try:
        provider = _present() or _configured()
    except Exception as error:  # noqa: BLE001 - whatever an SDK's part raises
        _log.warning(
            "traces are off: OpenTelemetry cannot be set up; look at the OTEL_* variables, and "
            "whether outbox-bridge[otel] is installed",
            reason=f"{type(error).__name__}: {error}",
        )
        return None
    return Tracing(provider)


def _present() -> TracerProvider | None:
    """Return the provider that `opentelemetry-instrument` or the like has set, if any."""
    from opentelemetry import trace  # noqa: PLC0415 - only where traces are wanted
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - likewise

    found = trace.get_tracer_provider()
    return found if isinstance(found, TracerProvider) else None


def _configured() -> TracerProvider:
    """Make the global provider from the environment.

    Its parts are those that the SDK's configurator puts together; that one itself would also take
    meters and logs over, and end its provider at exit without a time limit.
    """
    from opentelemetry import trace  # noqa: PLC0415 - only where traces are wanted
    from opentelemetry.sdk import _configuration as configuration  # noqa: PLC0415 - likewise
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - likewise
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - likewise

    # Underscored, but what distributions of OpenTelemetry build on; a test holds them to it.
    names = configuration._get_exporter_names("traces")  # noqa: SLF001 - as above
    exporters, _, _ = configuration._import_exporters(names, [], [])  # noqa: SLF001 - as above
    sampler = configuration._import_sampler(configuration._get_sampler())  # noqa: SLF001 - as above
    generator = configuration._get_id_generator()  # noqa: SLF001 - as above
    provider = TracerProvider(
        sampler=sampler,
        id_generator=configuration._import_id_generator(generator),  # noqa: SLF001 - as above
        shutdown_on_exit=False,
    )
    for exporter in exporters.values():
        provider.add_span_processor(BatchSpanProcessor(exporter()))
    trace.set_tracer_provider(provider)
    _log.info(
        "traces are on",
        exporters=sorted(exporters),
        sampler=provider.sampler.get_description(),
    )
    return provider
