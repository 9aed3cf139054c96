"""Metrics by OpenTelemetry's instruments, read as Prometheus text."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from bridge.telemetry import names
from bridge.telemetry.names import Kind
from bridge.telemetry.row_histogram import RowHistogram
from bridge.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Observations = Iterable[tuple[float, Mapping[str, str]]]


class Instruments:
    """The instruments of one relay, with a registry of their own.

    What is only counted or looked up when somebody asks comes from callbacks (`observe`), so that
    it costs the relay nothing meanwhile; `operations`, `sent` and `deliveries` are written to. The
    SDK honours its own `OTEL_*` variables (resource attributes, OTEL_SDK_DISABLED). Thread-safe.
    """

    def __init__(self, relay: str) -> None:
        self._registry = CollectorRegistry()
        # Without labels for the scope: there is one.
        reader = PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)
        buckets = ExplicitBucketHistogramAggregation(names.OPERATION_BOUNDS)
        self._provider = MeterProvider(
            [reader],
            Resource.create(
                {
                    "service.name": "outbox-bridge",
                    "service.version": __version__,
                    "service.instance.id": relay,
                }
            ),
            shutdown_on_exit=False,
            views=[View(instrument_name=names.OPERATION_DURATION.name, aggregation=buckets)],
        )
        self._meter = self._provider.get_meter(
            names.METER, __version__, schema_url=names.SCHEMA_URL
        )
        operation, sent = names.OPERATION_DURATION, names.SENT_MESSAGES
        self.operations = self._meter.create_histogram(
            operation.name, unit=operation.unit, description=operation.meaning
        )
        self.sent = self._meter.create_counter(sent.name, unit=sent.unit, description=sent.meaning)
        self.deliveries = RowHistogram(names.DELIVERY_BOUNDS)
        self._registry.register(_RowHistogramCollector(self.deliveries))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._scrape = threading.Lock()

    def observe(self, metric: names.Metric, read: Callable[[], Observations]) -> None:
        """Ask `read` for the values of a counter or gauge, with their labels, at each scrape."""

        def observations(_options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, labels) for value, labels in read()]

        create = (
            self._meter.create_observable_counter
            if metric.kind is Kind.COUNTER
            else self._meter.create_observable_gauge
        )
        create(metric.name, [observations], unit=metric.unit, description=metric.meaning)

    def expose(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text of all metrics, in the format that the scraper accepts."""
        encode, content_type = choose_encoder(accept)
        with self._scrape:  # many scrapers at once take turns
            return content_type, encode(self._registry)

    def shutdown(self) -> None:
        """Let go of everything; nothing is exported any more."""
        self._provider.shutdown()


class _RowHistogramCollector(Collector):
    def __init__(self, histogram: RowHistogram) -> None:
        self._histogram = histogram

    def collect(self) -> Iterator[Family]:
        metric = names.DELIVERY_DURATION
        family = HistogramMetricFamily(
            metric.prometheus_name, metric.meaning, labels=metric.prometheus_labels
        )
        for label, (buckets, total) in self._histogram.read().items():
            family.add_metric([label], buckets, total)
        yield family
