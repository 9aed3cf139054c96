"""PostgreSQL and Kafka on this machine: for the demo, the tests, the benchmarks and a laptop."""

from __future__ import annotations
