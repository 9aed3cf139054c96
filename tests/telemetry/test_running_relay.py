"""What a running relay exports, held against what stands in table and topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.telemetry.names import DELIVERY_BOUNDS, METRICS, Group
from tests.fixtures.postgres import on_one_server
from tests.fixtures.relays import FAST_LEASE, PATIENCE
from tests.fixtures.scraping import Scrape, address, get, parse, scrape
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.fixtures.kafka import ConsumeFunction, NewTopicFunction
    from tests.fixtures.relays import Outbox, RelayProcess, StartRelayFunction
    from tests.telemetry.conftest import PromtoolFunction

FAST_SAMPLES: dict[str, Any] = {"http_port": 0, "metrics_sample_interval": 0.5}
BACKLOG = {metric.prometheus_name for metric in METRICS if metric.group is Group.BACKLOG}
NOT_OURS = ("process_", "python_gc_", "target_info")


def wait_for_sample(relay: RelayProcess, name: str, value: float, **labels: str) -> Scrape:
    def look() -> list[Scrape]:
        found = scrape(relay)
        return [found] if found.value(name, **labels) == value else []

    return wait_until(look, f"{name}{labels} is {value}", PATIENCE)[0]


def test_counts_are_those_of_table_and_topic(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    consume: ConsumeFunction,
) -> None:
    orders, mails = new_topic("orders"), new_topic("mails")
    relay = start_relay(**FAST_SAMPLES)
    outbox.add(1500, orders)
    outbox.add(300, mails, prefix="t")
    outbox.add(200, mails, prefix="o", ordering_key="k")
    outbox.wait_all_sent()
    # Rows are counted once they are settled, so behind what the table says.
    wait_for_sample(relay, "outbox_bridge_relay_sent_total", 2000)
    for topic, rows in ((orders, 1500), (mails, 500)):
        delivered = "outbox_bridge_delivery_duration_seconds_count"
        wait_for_sample(relay, delivered, rows, destination=topic)
        wait_for_sample(relay, "outbox_bridge_relay_in_flight", 0, destination=topic)
    found = wait_for_sample(
        relay, "outbox_bridge_backlog_messages", 1500, destination=orders, status="SENT"
    )
    assert found.value("outbox_bridge_relay_claimed_total") == 2000
    assert found.value("outbox_bridge_relay_sent_total") == 2000
    for topic, rows in ((orders, 1500), (mails, 500)):
        assert len(consume(topic)) == rows
        mine = {"messaging_destination_name": topic, "messaging_system": "kafka"}
        assert found.total("messaging_client_sent_messages_total", **mine) == rows
        assert found.total("messaging_client_operation_duration_seconds_count", **mine) >= 1
        assert found.value("outbox_bridge_delivery_duration_seconds_count", destination=topic) == (
            rows
        )
        assert found.value("outbox_bridge_relay_in_flight", destination=topic) == 0
        breaker = "outbox_bridge_relay_breaker"
        assert found.value(breaker, destination=topic, state="closed") == 1
        assert found.total(breaker, destination=topic) == 1
    assert found.total("outbox_bridge_relay_failed_total") == 0
    assert found.value("outbox_bridge_relay_live") == 1
    assert found.value("outbox_bridge_relay_ready") == 1
    report = relay.stop()
    assert report["sent"] == 2000


def test_the_way_of_a_row_counts_from_when_it_could_first_go_out(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """Rows of an hour ago and of now in one batch; a scheduled one waits from its time on."""
    topic = new_topic()
    hour = outbox.value("select now() - interval '1 hour'")
    outbox.add(30, topic, prefix="old", created_at=hour, next_run_at=hour)
    outbox.add(1, topic, prefix="ever", next_run_at="-infinity")
    outbox.add(10, topic, prefix="new")
    relay = start_relay(**FAST_SAMPLES)
    outbox.wait_all_sent()
    name = "outbox_bridge_delivery_duration_seconds"
    found = wait_for_sample(relay, f"{name}_count", 40, destination=topic)
    buckets = {
        bound: found.value(f"{name}_bucket", destination=topic, le=f"{bound:g}")
        for bound in DELIVERY_BOUNDS
    }
    assert buckets[900] == 10
    assert buckets[3600] == 10
    assert buckets[14400] == 40
    total = found.value(f"{name}_sum", destination=topic)
    assert total is not None
    assert 30 * 3600 <= total < 30 * 3600 + 41 * PATIENCE


@on_one_server
def test_everything_that_is_documented_is_exported_and_nothing_else(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    small = new_topic("small", config={"max.message.bytes": "2000"})
    well, paused = new_topic("well"), new_topic("paused")
    # Incompressible and over the limit: refused, FAILED, and its key is held.
    large = outbox.value(
        "select to_json(string_agg(md5(n::text), '')) from generate_series(1, 200) n"
    )
    row = {"ordering_key": "k", "payload_json": str(large).join('""')}
    refused_ids = outbox.add(1, small, prefix="large", **row)
    outbox.add(3, small, prefix="behind", ordering_key="k")
    well_ids = outbox.add(5, well, prefix="w")
    outbox.execute(
        "insert into app_outbox_control (destination, paused, changed_by, reason) "
        "values (%s, true, 'me', 'test')",
        paused,
    )
    outbox.add(2, paused, prefix="p")
    relay = start_relay(**FAST_SAMPLES)
    outbox.wait_for("FAILED", refused_ids)
    outbox.wait_for("SENT", well_ids)
    # Everything that is looked at has happened, is counted, and is in the sample.
    wait_for_sample(relay, "outbox_bridge_relay_failed_total", 1)
    wait_for_sample(relay, "outbox_bridge_delivery_duration_seconds_count", 5, destination=well)
    backlog = "outbox_bridge_backlog_messages"
    wait_for_sample(relay, backlog, 1, destination=small, status="FAILED")
    wait_for_sample(relay, backlog, 5, destination=well, status="SENT")
    found = wait_for_sample(relay, "outbox_bridge_keys_followers", 3, destination=small)
    assert found.value("outbox_bridge_keys_held", destination=small) == 1
    assert found.value("outbox_bridge_backlog_messages", destination=small, status="FAILED") == 1
    assert found.value("outbox_bridge_relay_failed_total") == 1
    assert found.value("outbox_bridge_backlog_due", destination=paused) == 2
    assert found.value("outbox_bridge_switch", destination=paused, switch="paused") == 1
    assert found.value("outbox_bridge_relays", state="living") == 1
    refused = {"messaging_destination_name": small, "error_type": "MSG_SIZE_TOO_LARGE"}
    assert found.total("messaging_client_sent_messages_total", **refused) >= 1

    exported: dict[str, set[str]] = {}
    for name, labels in found.samples:
        family = name
        for suffix in ("_bucket", "_sum", "_count"):
            if found.types.get(name.removesuffix(suffix)) == "histogram":
                family = name.removesuffix(suffix)
        if not family.startswith(NOT_OURS):
            exported.setdefault(family, set()).update({key for key, _ in labels} - {"le"})
    assert exported == {m.prometheus_name: set(m.prometheus_labels) for m in METRICS}
    kinds = {m.prometheus_name.removesuffix("_total"): m.kind.value for m in METRICS}
    assert {name: found.types[name] for name in kinds} == kinds


@on_one_server
def test_one_relay_samples_for_all_and_another_one_takes_over_when_it_is_killed(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    outbox.add(10, topic)
    first = start_relay(name="first", **FAST_SAMPLES, **FAST_LEASE)
    second = start_relay(name="second", **FAST_SAMPLES, **FAST_LEASE)
    outbox.wait_all_sent()
    leading, other = (
        wait_for_sample(first, "outbox_bridge_relays", 2, state="living"),
        wait_for_sample(second, "outbox_bridge_relay_leader", 0),
    )
    assert leading.value("outbox_bridge_relay_leader") == 1
    assert leading.names > BACKLOG - {"outbox_bridge_switch", "outbox_bridge_relay_leader"}
    assert not other.names & BACKLOG
    assert "sample" in outbox.sessions("first")
    assert "sample" not in outbox.sessions("second")

    first.process.kill()
    found = wait_for_sample(
        second, "outbox_bridge_backlog_messages", 10, destination=topic, status="SENT"
    )
    assert found.value("outbox_bridge_relay_leader") == 1


HOSTILE = [
    'quotes "and\\back\\slashes"',
    "line\nfeed",
    "carriage\r\nreturn",
    '{destination="x"} 1',
    "# EOF",
    "ünïcödé 🐘",
    "\x01\x7f control",
    "x" * 200,
    "other",
    "ordinary",
]


@on_one_server
def test_hostile_names_stay_label_values_and_many_of_them_are_other(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    topic = new_topic()
    routes = f'[{{"destination": "*", "topic": "{topic}"}}]'
    relay = start_relay(env={"OUTBOX_BRIDGE_ROUTES": routes}, **FAST_SAMPLES)
    capped = start_relay(
        env={"OUTBOX_BRIDGE_ROUTES": routes}, metrics_max_destinations=4, **FAST_SAMPLES
    )
    for number, name in enumerate(HOSTILE):
        outbox.add(20, name, prefix=f"h{number}")
    outbox.wait_all_sent()
    found = wait_for_sample(
        relay, "outbox_bridge_backlog_messages", 20, destination=HOSTILE[-1], status="SENT"
    )
    for name in HOSTILE:
        labels = {"destination": name, "status": "SENT"}
        assert found.value("outbox_bridge_backlog_messages", **labels) == 20, name
    assert found.labels("outbox_bridge_relay_breaker", "destination") <= set(HOSTILE)
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        page = get(f"{address(relay)}/metrics", accept=accept)
        assert ("openmetrics" in page.headers["Content-Type"]) is ("openmetrics" in accept)
        # One line each, whatever the names hold.
        starts = ("#", "outbox_bridge", "messaging", "process", "python", "target")
        assert all(line.startswith(starts) for line in page.text.rstrip("\n").split("\n"))

    def delivered() -> float:
        name = "outbox_bridge_delivery_duration_seconds_count"
        return sum(scrape(one).total(name) for one in (relay, capped))

    wait_until(lambda: delivered() == 20 * len(HOSTILE), "all rows are counted", PATIENCE)
    # Alone it meets all the names, whatever it had of the first ones.
    relay.stop()
    for number, name in enumerate(HOSTILE):
        outbox.add(1, name, prefix=f"again{number}")
    outbox.wait_all_sent()
    few = scrape(capped).labels("outbox_bridge_relay_breaker", "destination")
    assert "other" in few
    assert len(few) <= 5


@on_one_server
def test_prometheus_itself_can_read_it(
    outbox: Outbox,
    start_relay: StartRelayFunction,
    new_topic: NewTopicFunction,
    promtool: PromtoolFunction,
) -> None:
    topic = new_topic()
    routes = f'[{{"destination": "*", "topic": "{topic}"}}]'
    relay = start_relay(env={"OUTBOX_BRIDGE_ROUTES": routes}, **FAST_SAMPLES)
    for number, name in enumerate(HOSTILE):
        outbox.add(1, name, prefix=f"h{number}")
    outbox.wait_all_sent()
    text = get(f"{address(relay)}/metrics").text
    assert parse(text).value("outbox_bridge_relay_sent_total") is not None
    done = promtool("check", "metrics", stdin=text)
    ours = [line for line in done.stderr.splitlines() if line.startswith("outbox_bridge")]
    # 3: read well, and it would have other names for some of those that are not ours.
    assert done.returncode in {0, 3}, done.stderr
    assert ours == []


@on_one_server
def test_runs_with_an_end_serve_nothing(
    outbox: Outbox, start_relay: StartRelayFunction, new_topic: NewTopicFunction
) -> None:
    """A relay under cron must not fail because another one has the port."""
    outbox.add(3, new_topic())
    relay = start_relay("--until-empty", wait=False, http_port=1)
    assert relay.process.wait(PATIENCE) == 0
    assert relay.report["sent"] == 3
