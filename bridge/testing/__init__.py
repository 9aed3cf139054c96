"""For tests of applications: what the code under test enqueued, and what becomes of it.

pytest loads `plugin` by itself and finds the fixtures `outbox`, `outbox_relay` and `kafka_mock`;
other frameworks use `bridge.testing.outbox.Outbox` and `bridge.testing.relay.OutboxRelay`. Nothing
is loaded before it is used.
"""

from __future__ import annotations
