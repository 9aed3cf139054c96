"""The processes around one order: `python -m tests.telemetry.actors NAME`.

Each sets up its own SDK from OTEL_* variables, does its part and ends: a writer, two consumers, and
the service that one of them calls by HTTP. Arguments come as variables beginning with ACTOR_.
"""

from __future__ import annotations

import asyncio
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import psycopg
from aiokafka import AIOKafkaConsumer
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import attach

from bridge import enqueue
from bridge.settings import are_traces_wanted
from bridge.telemetry.context import current_context
from bridge.telemetry.sdk import start_tracing
from bridge.telemetry.tracing import processing

DATABASE = os.environ.get("ACTOR_DATABASE", "")
TOPIC = os.environ.get("ACTOR_TOPIC", "")
BROKERS = os.environ.get("ACTOR_BROKERS", "")
API = os.environ.get("ACTOR_API", "")


def write() -> None:
    """Take an order: the business transaction."""
    attach(baggage.set_baggage("tenant", "a b"))
    with (
        trace.get_tracer("shop").start_as_current_span("POST /orders"),
        psycopg.connect(DATABASE) as conn,
    ):
        enqueue(
            conn,
            message_key="order-1",
            event_type="order.created",
            destination=TOPIC,
            payload={"order": 1},
        )


async def consume(group: str, *, as_child: bool) -> None:
    """Handle one record; the payment service calls an API within."""
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=BROKERS, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        record = await consumer.getone()
        with processing(
            record.headers,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            group=group,
            timestamp_ms=record.timestamp,
            as_child=as_child,
        ) as span:
            span.note("shop.tenant", str(baggage.get_baggage("tenant")))
            if API:
                with trace.get_tracer("shop").start_as_current_span(
                    "POST /charges", kind=trace.SpanKind.CLIENT
                ):
                    headers = dict(current_context())
                    async with httpx.AsyncClient(timeout=60) as client:
                        answer = await client.post(API, headers=headers)
                    answer.raise_for_status()
        await consumer.commit()
    finally:
        await consumer.stop()


def serve() -> None:
    """Answer one call; the port goes to the file that is named."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            context = propagate.extract(dict(self.headers.items()))
            tracer = trace.get_tracer("shop")
            with tracer.start_as_current_span("charge", context, kind=trace.SpanKind.SERVER):
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Path(os.environ["ACTOR_PORT_FILE"]).write_text(f"{server.server_port}\n")
        server.handle_request()


def main() -> None:
    """Play the part that is named."""
    assert are_traces_wanted("nobody")
    tracing = start_tracing()
    assert tracing is not None
    match sys.argv[1]:
        case "writer":
            write()
        case "payments":
            asyncio.run(consume("payments", as_child=True))
        case "notifications":
            asyncio.run(consume("notifications", as_child=False))
        case "api":
            serve()
    assert tracing.close(60)


if __name__ == "__main__":
    main()
