"""A row that ends the process which handles it, for real: it is found, set apart and FAILED."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import assert_places_hold

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

_MAX_CLAIMS = 2
# Twice with the others of its batch, once among the suspects that a relay has at the same time.
_DEATHS_IN_COMPANY = 3
_DEATHLY = '''
"""A codec that crashes on one payload, as a bug in native code would: no exception, no clean-up."""

import os
import signal

from confluent_kafka import Producer
from bridge.kafka import producer as adapter


def _deadly(kind):
    class Deadly(kind):
        def produce(self, *args, **kwargs):
            if b"deadly" in (kwargs.get("value") or b"".join(a for a in args if type(a) is bytes)):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().produce(*args, **kwargs)

    return Deadly


adapter.Producer = _deadly(Producer)
'''


@on_one_server
def test_a_row_that_kills_every_relay_is_failed_as_poison_and_the_others_are_sent(
    *,
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_DEATHLY)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    topic = new_topic()
    before = outbox.add(20, topic, prefix="before")
    poison = outbox.add(1, topic, prefix="poison", payload_json='{"codec": "deadly"}')
    after = outbox.add(20, topic, prefix="after")

    deaths = 0
    while outbox.rows(poison)[0].status != "FAILED":
        relay = start_relay(
            "--until-empty",
            wait=False,
            env={"PYTHONPATH": path},
            relay_max_claims=_MAX_CLAIMS,
        )
        deaths += relay.process.wait() != 0
        assert deaths <= _DEATHS_IN_COMPANY + _MAX_CLAIMS + 1, relay.process.stderr
    assert deaths == _DEATHS_IN_COMPANY + _MAX_CLAIMS

    (row,) = outbox.rows(poison)
    assert (row.last_error_code, row.retry_count) == ("POISON", 0)
    rows = outbox.wait_for("SENT", before + after)
    records = consume(topic)
    assert_places_hold(rows, records)
    assert not any(b"deadly" in (record.value or b"") for record in records)
    outbox.assert_nothing_is_left_behind()
