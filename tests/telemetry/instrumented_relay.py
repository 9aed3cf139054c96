"""The program with the contrib instrumentations of both drivers, as auto-instrumentation has it."""

from __future__ import annotations

import sys

import confluent_kafka
import psycopg
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor

if __name__ == "__main__":
    before = confluent_kafka.Producer, psycopg.connect
    ConfluentKafkaInstrumentor().instrument()
    PsycopgInstrumentor().instrument()
    assert confluent_kafka.Producer is not before[0]
    assert psycopg.connect is not before[1]
    from bridge.__main__ import main

    sys.exit(main())
