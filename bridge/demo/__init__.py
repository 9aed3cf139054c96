"""The demo: a shop, two relays and a consumer on a private PostgreSQL and Kafka."""

from __future__ import annotations
