"""Each verdict on Kafka, with one thing really broken; brokers obey ACLs and create no topic."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from bridge.doctor import Finding, Verdict, examine
from bridge.doctor.brokers import kafka_version
from bridge.doctor.cluster import Cluster
from bridge.doctor.examination import KAFKA
from bridge.doctor.topics import judge_replicas
from bridge.kafka.partitions import partition_of
from bridge.kafka.survey import ClusterSurvey, TopicSurvey
from bridge.local.kafka import LocalKafka
from bridge.local.mock import MockKafka
from bridge.settings import load_settings
from tests.cli.test_status import insert
from tests.doctor.conftest import the_problem, verdicts
from tests.fixtures.kafka import silent
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.cli import RunCliFunction
    from tests.fixtures.kafka import OwnKafkaFunction
    from tests.fixtures.relays import Outbox, StartRelayFunction

Connection = psycopg.Connection[Any]

_GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
_OK = [Verdict.OK]


@pytest.fixture(scope="module")
def guarded(*, uses_real_kafka: bool) -> Iterator[str]:
    """A broker that obeys ACLs and creates no topic by itself."""
    if not uses_real_kafka:
        pytest.skip("the mock cluster knows neither ACLs nor DescribeConfigs")
    with LocalKafka(settings=_GUARDED) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def admin(guarded: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": guarded}, logger=silent)


class LookFunction(Protocol):
    def __call__(self, check: str, **sections: Any) -> list[Finding]: ...


@pytest.fixture
def look(guarded: str, database_url: str) -> LookFunction:
    """Make one check of Kafka with the given settings."""

    def make(check: str, **sections: Any) -> list[Finding]:
        sections["kafka"] = {"bootstrap_servers": guarded, **sections.get("kafka", {})}
        sections["database"] = {"url": database_url}
        findings = examine(load_settings(None, sections), only=[check], timeout=60)
        assert {one.check for one in findings} == {check}
        return findings

    return make


@pytest.fixture
def conn(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def create(admin: AdminClient, partitions: int = 3, **config: str) -> str:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    named = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)
    admin.create_topics([new])[topic].result(60)
    wait_until(lambda: is_led(admin, topic), f"topic {topic} is ready")
    return topic


def is_led(admin: AdminClient, topic: str) -> bool:
    """Whether the broker knows the topic, which it may a moment after its creation."""
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
    return bool(found) and all(one.error is None and one.leader >= 0 for one in found)


def route(topic: str, destination: str = "orders", **more: str) -> list[dict[str, str]]:
    return [{"destination": destination, "topic": topic, **more}]


@on_one_server
def test_a_well_made_topic_is_well(
    admin: AdminClient, guarded: str, conn: Connection, run_cli: RunCliFunction
) -> None:
    topic = create(admin)
    insert(conn, 1, topic)
    done = run_cli("doctor", *KAFKA, env={"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": guarded})
    assert "the brokers are Kafka 4.0 or newer" in done.stdout
    assert f"{len(KAFKA)} ok, 0 problem, 0 unknown" in done.stdout


@on_one_server
def test_kafka_that_does_not_answer_is_no_verdict(database_url: str) -> None:
    settings = load_settings(
        None, {"database": {"url": database_url}, "kafka": {"bootstrap_servers": "localhost:1"}}
    )
    found = examine(settings, only=list(KAFKA), timeout=1)
    assert {one.verdict for one in found} == {Verdict.UNKNOWN}
    assert "does not answer" in found[0].evidence


@on_one_server
def test_brokers_that_are_too_old_are_named(database_url: str) -> None:
    """The mock speaks the protocol itself, without the requests that came with Kafka 3.0."""
    with MockKafka() as mock:
        kafka = {"bootstrap_servers": mock.bootstrap_servers}
        settings = load_settings(None, {"database": {"url": database_url}, "kafka": kafka})
        found = the_problem(examine(settings, only=["kafka-version"], timeout=60))
    assert "older" in found.evidence


def test_versions_that_are_not_told_are_no_verdict() -> None:
    survey = ClusterSurvey(1, controller=True)
    settings = load_settings(None, {})
    cluster = Cluster(settings, {}, settings.router(), None, survey)
    assert [one.verdict for one in kafka_version(cluster)] == [Verdict.UNKNOWN]


@on_one_server
def test_a_destination_without_topic_is_named(
    look: LookFunction, conn: Connection, admin: AdminClient
) -> None:
    name = f"nobody-{uuid.uuid4().hex[:8]}"
    insert(conn, 3, name)
    found = the_problem(look("destinations"))
    assert f"destination '{name}' (3 open rows): no route names it" in found.evidence
    assert "does not exist" in found.evidence
    topic = create(admin)
    assert verdicts(look("destinations", routes=route(topic, name))) == _OK
    assert verdicts(look("destinations", relay={"missing_topic": "create"})) == _OK
    insert(conn, 1, "no topic's name")
    evidence = [one.evidence for one in look("destinations", routes=route(topic, name))]
    assert len(evidence) == 1
    assert "a name that no topic can have" in evidence[0]


def test_destinations_are_unknown_where_the_database_does_not_answer(guarded: str) -> None:
    settings = load_settings(
        None,
        {
            "database": {"url": "postgresql://localhost:1/none"},
            "kafka": {"bootstrap_servers": guarded},
        },
    )
    found = examine(settings, only=["destinations", "kafka"], timeout=30)
    assert {one.check: one.verdict for one in found} == {
        "destinations": Verdict.UNKNOWN,
        "kafka": Verdict.OK,
    }


@on_one_server
def test_a_dead_letter_topic_that_is_missing_is_named(
    look: LookFunction, admin: AdminClient
) -> None:
    topic = create(admin)
    missing = f"dead-{uuid.uuid4().hex[:8]}"
    found = the_problem(look("topics", routes=route(topic, dead_letter=missing)))
    assert f"topic {missing} (dead_letter of the route of orders)" in found.evidence
    assert verdicts(look("topics", routes=route(topic))) == _OK


@on_one_server
def test_a_topic_that_acls_forbid_is_named(look: LookFunction, admin: AdminClient) -> None:
    topic = create(admin)
    routes = route(topic)
    assert verdicts(look("topic-rights", routes=routes)) == _OK
    denied = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([denied])[denied].result(60)
    found = wait_until(
        lambda: [
            one for one in look("topic-rights", routes=routes) if one.verdict is Verdict.PROBLEM
        ],
        "the ACL is in force",
    )
    assert f"does not allow WRITE on topic {topic}" in the_problem(found).evidence
    # Who may not describe its settings is told nothing about them.
    (found_size,) = look("message-size", routes=routes)
    assert found_size.verdict is Verdict.UNKNOWN
    assert "DESCRIBE_CONFIGS" in found_size.next_step


@on_one_server
def test_more_replicas_asked_for_than_there_are_is_a_problem(
    look: LookFunction, admin: AdminClient
) -> None:
    topic = create(admin, min_insync_replicas="2")
    found = the_problem(look("min-insync-replicas", routes=route(topic)))
    assert "min.insync.replicas 2 with 1 replica: before Kafka 3.7 no record" in found.evidence


@pytest.mark.parametrize(
    ("least", "replicas", "brokers", "words"),
    [
        (1, 1, 1, None),
        (1, 1, 3, "takes acknowledged records with it"),
        (1, 2, 3, "on one broker alone"),
        (1, 3, 3, "on one broker alone"),
        (2, 3, 3, None),
        (3, 3, 3, "stops every write"),
        (2, 2, 3, "stops every write"),
        (4, 3, 3, "no record is acknowledged"),
        (None, 3, 3, None),
    ],
)
def test_replicas_are_judged(
    least: int | None, replicas: int, brokers: int, words: str | None
) -> None:
    topic = TopicSurvey("t", partitions=1, replicas=replicas, min_insync_replicas=least)
    found = judge_replicas(topic, brokers)
    assert (found is None) if words is None else (found is not None and words in found.evidence)


@on_one_server
@pytest.mark.timeout(400)
def test_a_broker_that_is_down_leaves_partitions_without_leader(
    own_kafka: OwnKafkaFunction, database_url: str
) -> None:
    cluster = own_kafka(3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}, logger=silent)
    single = NewTopic(
        "single",
        num_partitions=3,
        replica_assignment=[[1], [2], [3]],
        config={"min.insync.replicas": "1"},
    )
    triple = NewTopic(
        "triple",
        num_partitions=2,
        replica_assignment=[[1, 2, 3]] * 2,
        config={"min.insync.replicas": "2"},
    )
    for future in admin.create_topics([single, triple]).values():
        future.result(60)
    settings = load_settings(
        None,
        {
            "database": {"url": database_url},
            "kafka": {"bootstrap_servers": cluster.bootstrap_servers},
            "routes": [*route("single", "a"), *route("triple", "b")],
        },
    )

    def found(check: str) -> list[Finding]:
        return examine(settings, only=[check], timeout=30)

    wait_until(lambda: verdicts(found("topics")) == _OK, "all partitions are led and in sync", 90)
    lonely = the_problem(found("min-insync-replicas"))
    assert "topic single: min.insync.replicas 1 with 1 replica" in lonely.evidence
    cluster.stop(2)

    def is_noticed() -> bool:
        problems = [one for one in found("topics") if one.verdict is Verdict.PROBLEM]
        down = sorted(one.evidence for one in problems)
        return (
            len(down) == 3
            and "topic single: partition 2 has no leader" in down[0]
            and "topic triple: partition 0, 1 has replicas that are not in sync" in down[2]
        )

    wait_until(is_noticed, "the cluster has noticed", 90)


@on_one_server
def test_limits_below_what_may_be_enqueued_are_named(
    look: LookFunction, admin: AdminClient
) -> None:
    topic = create(admin, max_message_bytes="2000")
    found = the_problem(look("message-size", routes=route(topic)))
    assert f"topic {topic} takes records of 2.0 KiB at most" in found.evidence
    small = {"max_payload_bytes": 1000}
    assert verdicts(look("message-size", routes=route(topic), enqueue=small)) == _OK
    large = {"max_payload_bytes": 5_000_000}
    found = the_problem(look("message-size", enqueue=large))
    assert "enqueue.max_payload_bytes is 5,000,000" in found.evidence


@on_one_server
def test_records_in_another_partition_than_java_chooses_are_counted(
    look: LookFunction, conn: Connection, admin: AdminClient
) -> None:
    topic = create(admin, partitions=3)

    def sent(shift: int) -> None:
        for number in range(10):
            key = f"{shift}-{number}"
            conn.execute(
                "insert into app_outbox (message_key, event_type, destination, status, "
                "sent_partition, sent_offset) values (%s, 'e', %s, 'SENT', %s, 0)",
                [key, topic, (partition_of(key.encode(), 3) + shift) % 3],
            )

    sent(0)
    (found,) = look("partitioner")
    assert "10 recent records looked at" in found.evidence
    sent(1)
    assert "10 of the newest 20 records" in the_problem(look("partitioner")).evidence


@on_one_server
def test_a_partitioner_that_was_forced_is_named(look: LookFunction) -> None:
    forced = {"partitioner": "consistent_random", "allow_unsafe": ["partitioner"]}
    found = the_problem(look("partitioner", kafka=forced))
    assert "partitioner = consistent_random is allowed by kafka.allow_unsafe" in found.evidence


@on_one_server
def test_a_relay_tells_which_destination_fails_until_it_flows_again(
    guarded: str, admin: AdminClient, outbox: Outbox, start_relay: StartRelayFunction
) -> None:
    topic = f"late-{uuid.uuid4().hex[:8]}"
    ids = outbox.add(3, topic)
    start_relay(
        env={"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": guarded}, relay_heartbeat_interval=0.3
    )
    told = wait_until(lambda: outbox.query("table outbox_breakers"), "the breaker is told", 60)
    assert told[0][0] == topic
    assert told[0][3].startswith("TOPIC_MISSING")
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(60)
    outbox.wait_for("SENT", ids)
    wait_until(lambda: not outbox.query("table outbox_breakers"), "the breaker is closed", 60)
