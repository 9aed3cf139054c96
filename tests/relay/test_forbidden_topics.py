"""Topics that a real broker's ACLs forbid wait; others flow, and a granted right is noticed."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeVar

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from bridge.local.kafka import LocalKafka
from tests.fixtures.postgres import on_one_server
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.kafka import KafkaBroker
    from tests.fixtures.relays import Outbox, StartRelayFunction

_Kind = TypeVar("_Kind", AclBinding, AclBindingFilter)

# What an ACL forbids does not depend on PostgreSQL's version.
pytestmark = on_one_server


@pytest.fixture(scope="module")
def guarded(kafka: KafkaBroker) -> Iterator[str]:
    """A broker that obeys ACLs and allows what none of them mentions."""
    if not kafka.is_real:
        pytest.skip("the mock cluster knows no ACLs")
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with LocalKafka(settings=settings) as broker:
        yield broker.bootstrap_servers


def denied(kind: type[_Kind], topic: str, operation: AclOperation) -> _Kind:
    return kind(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        AclPermissionType.DENY,
    )


@pytest.mark.parametrize("operation", [AclOperation.WRITE, AclOperation.DESCRIBE])
def test_a_forbidden_topic_waits_and_others_flow(
    outbox: Outbox, start_relay: StartRelayFunction, guarded: str, operation: AclOperation
) -> None:
    admin = AdminClient({"bootstrap.servers": guarded})
    tag = uuid.uuid4().hex[:8]
    forbidden, free = f"forbidden-{tag}", f"free-{tag}"
    topics = [NewTopic(topic, num_partitions=2) for topic in (forbidden, free)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for done in admin.create_acls([denied(AclBinding, forbidden, operation)]).values():
        done.result(30)
    waiting = outbox.add(5, forbidden, prefix="w")
    relay = start_relay(kafka_bootstrap_servers=guarded, retry_base=0.5, retry_cap=1)

    told = relay.wait_for_event("destination fails")
    assert (told["destination"], told["code"]) == (forbidden, "TOPIC_FORBIDDEN")
    outbox.wait_for("SENT", outbox.add(50, free, prefix="o"))
    # The answer came from the cluster, so what was in flight was charged; the rest only waits.
    assert {row.status for row in outbox.rows(waiting)} <= {"PENDING", "PROCESSING"}

    for removed in admin.delete_acls([denied(AclBindingFilter, forbidden, operation)]).values():
        removed.result(30)
    for row in outbox.wait_for("SENT", waiting):
        assert row.retry_count <= 1
    wait_until(lambda: relay.events("destination takes records again"), "it says that, too")
    relay.stop()
    outbox.assert_nothing_is_left_behind()
