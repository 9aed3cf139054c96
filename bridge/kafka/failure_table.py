"""The table of failures: librdkafka's name of an error code to its verdict (pure).

Names with a leading underscore are the client's own, the others are the broker's answers. A test
holds the table complete for the installed client, and `docs/failure-classes.md` in step with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class FailureClass(StrEnum):
    """How far a failure reaches."""

    BROKER = "broker"
    """The whole cluster: no record goes anywhere until it is mended."""
    DESTINATION = "destination"
    """One topic or one of its partitions; others may well take records."""
    MESSAGE = "message"
    """The record itself is refused; sending it again as it is cannot help."""
    FATAL = "fatal"
    """The producer is unusable; a new one is needed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure means; `charged` says whether the attempt counts against the message."""

    failure_class: FailureClass
    charged: bool


BROKER = Verdict(FailureClass.BROKER, charged=False)
"""Nobody at the cluster accepts us."""
PASSING = Verdict(FailureClass.DESTINATION, charged=False)
"""On the way or at the partition's leader; passes without anybody touching the message."""
LASTING = Verdict(FailureClass.DESTINATION, charged=True)
"""Stays until somebody changes the topic, its rights or a setting; also what nobody knows."""
# A refused record takes its whole librdkafka batch with it, so a code of this class counts only
# against a record that was alone in its batch; the others are sent again, one by one.
MESSAGE = Verdict(FailureClass.MESSAGE, charged=True)
FATAL = Verdict(FailureClass.FATAL, charged=False)

# One lost connection (_TRANSPORT, NETWORK_EXCEPTION …) is not the cluster's failure: the leaders of
# other partitions may be well. Whether all of it is down is asked of the cluster itself.
VERDICTS: Mapping[str, Verdict] = MappingProxyType(
    {
        "_BAD_MSG": MESSAGE,
        "_BAD_COMPRESSION": MESSAGE,
        "_DESTROY": PASSING,
        "_FAIL": PASSING,
        "_TRANSPORT": PASSING,
        "_CRIT_SYS_RESOURCE": PASSING,
        "_RESOLVE": PASSING,
        "_MSG_TIMED_OUT": PASSING,
        "_PARTITION_EOF": LASTING,
        "_UNKNOWN_PARTITION": LASTING,
        "_FS": PASSING,
        "_UNKNOWN_TOPIC": LASTING,
        "_ALL_BROKERS_DOWN": BROKER,
        "_INVALID_ARG": MESSAGE,
        "_TIMED_OUT": PASSING,
        "_QUEUE_FULL": PASSING,
        "_ISR_INSUFF": PASSING,
        "_NODE_UPDATE": PASSING,
        "_SSL": BROKER,
        "_WAIT_COORD": PASSING,
        "_UNKNOWN_GROUP": LASTING,
        "_IN_PROGRESS": PASSING,
        "_PREV_IN_PROGRESS": PASSING,
        "_EXISTING_SUBSCRIPTION": LASTING,
        "_ASSIGN_PARTITIONS": LASTING,
        "_REVOKE_PARTITIONS": LASTING,
        "_CONFLICT": LASTING,
        "_STATE": LASTING,
        "_UNKNOWN_PROTOCOL": LASTING,
        "_NOT_IMPLEMENTED": LASTING,
        "_AUTHENTICATION": BROKER,
        "_NO_OFFSET": LASTING,
        "_OUTDATED": PASSING,
        "_TIMED_OUT_QUEUE": PASSING,
        "_UNSUPPORTED_FEATURE": LASTING,
        "_WAIT_CACHE": PASSING,
        "_INTR": PASSING,
        "_KEY_SERIALIZATION": MESSAGE,
        "_VALUE_SERIALIZATION": MESSAGE,
        "_KEY_DESERIALIZATION": LASTING,
        "_VALUE_DESERIALIZATION": LASTING,
        "_PARTIAL": PASSING,
        "_READ_ONLY": LASTING,
        "_NOENT": LASTING,
        "_UNDERFLOW": LASTING,
        "_INVALID_TYPE": LASTING,
        "_RETRY": PASSING,
        "_PURGE_QUEUE": PASSING,
        "_PURGE_INFLIGHT": PASSING,
        "_FATAL": FATAL,
        "_INCONSISTENT": FATAL,
        "_GAPLESS_GUARANTEE": FATAL,
        "_MAX_POLL_EXCEEDED": LASTING,
        "_UNKNOWN_BROKER": PASSING,
        "_NOT_CONFIGURED": LASTING,
        "_FENCED": FATAL,
        "_APPLICATION": LASTING,
        "_ASSIGNMENT_LOST": LASTING,
        "_NOOP": LASTING,
        "_AUTO_OFFSET_RESET": LASTING,
        "_LOG_TRUNCATION": LASTING,
        "_INVALID_DIFFERENT_RECORD": MESSAGE,
        "_DESTROY_BROKER": PASSING,
        "UNKNOWN": LASTING,
        "OFFSET_OUT_OF_RANGE": LASTING,
        "INVALID_MSG": MESSAGE,
        "UNKNOWN_TOPIC_OR_PART": LASTING,
        "INVALID_MSG_SIZE": MESSAGE,
        "LEADER_NOT_AVAILABLE": PASSING,
        "NOT_LEADER_FOR_PARTITION": PASSING,
        "REQUEST_TIMED_OUT": PASSING,
        "BROKER_NOT_AVAILABLE": PASSING,
        "REPLICA_NOT_AVAILABLE": PASSING,
        "MSG_SIZE_TOO_LARGE": MESSAGE,
        "STALE_CTRL_EPOCH": PASSING,
        "OFFSET_METADATA_TOO_LARGE": LASTING,
        "NETWORK_EXCEPTION": PASSING,
        "COORDINATOR_LOAD_IN_PROGRESS": PASSING,
        "COORDINATOR_NOT_AVAILABLE": PASSING,
        "NOT_COORDINATOR": PASSING,
        "TOPIC_EXCEPTION": MESSAGE,
        "RECORD_LIST_TOO_LARGE": MESSAGE,
        "NOT_ENOUGH_REPLICAS": PASSING,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": PASSING,
        "INVALID_REQUIRED_ACKS": LASTING,
        "ILLEGAL_GENERATION": LASTING,
        "INCONSISTENT_GROUP_PROTOCOL": LASTING,
        "INVALID_GROUP_ID": LASTING,
        "UNKNOWN_MEMBER_ID": LASTING,
        "INVALID_SESSION_TIMEOUT": LASTING,
        "REBALANCE_IN_PROGRESS": LASTING,
        "INVALID_COMMIT_OFFSET_SIZE": LASTING,
        "TOPIC_AUTHORIZATION_FAILED": LASTING,
        "GROUP_AUTHORIZATION_FAILED": LASTING,
        "CLUSTER_AUTHORIZATION_FAILED": BROKER,
        "INVALID_TIMESTAMP": MESSAGE,
        "UNSUPPORTED_SASL_MECHANISM": BROKER,
        "ILLEGAL_SASL_STATE": BROKER,
        "UNSUPPORTED_VERSION": LASTING,
        "TOPIC_ALREADY_EXISTS": LASTING,
        "INVALID_PARTITIONS": LASTING,
        "INVALID_REPLICATION_FACTOR": LASTING,
        "INVALID_REPLICA_ASSIGNMENT": LASTING,
        "INVALID_CONFIG": LASTING,
        "NOT_CONTROLLER": PASSING,
        "INVALID_REQUEST": LASTING,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": LASTING,
        "POLICY_VIOLATION": LASTING,
        "OUT_OF_ORDER_SEQUENCE_NUMBER": FATAL,
        "DUPLICATE_SEQUENCE_NUMBER": FATAL,
        "INVALID_PRODUCER_EPOCH": FATAL,
        "INVALID_TXN_STATE": FATAL,
        "INVALID_PRODUCER_ID_MAPPING": FATAL,
        "INVALID_TRANSACTION_TIMEOUT": LASTING,
        "CONCURRENT_TRANSACTIONS": PASSING,
        "TRANSACTION_COORDINATOR_FENCED": FATAL,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": BROKER,
        "SECURITY_DISABLED": BROKER,
        "OPERATION_NOT_ATTEMPTED": PASSING,
        "KAFKA_STORAGE_ERROR": PASSING,
        "LOG_DIR_NOT_FOUND": PASSING,
        "SASL_AUTHENTICATION_FAILED": BROKER,
        "UNKNOWN_PRODUCER_ID": FATAL,
        "REASSIGNMENT_IN_PROGRESS": PASSING,
        "DELEGATION_TOKEN_AUTH_DISABLED": BROKER,
        "DELEGATION_TOKEN_NOT_FOUND": BROKER,
        "DELEGATION_TOKEN_OWNER_MISMATCH": BROKER,
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": BROKER,
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED": BROKER,
        "DELEGATION_TOKEN_EXPIRED": BROKER,
        "INVALID_PRINCIPAL_TYPE": LASTING,
        "NON_EMPTY_GROUP": LASTING,
        "GROUP_ID_NOT_FOUND": LASTING,
        "FETCH_SESSION_ID_NOT_FOUND": LASTING,
        "INVALID_FETCH_SESSION_EPOCH": LASTING,
        "LISTENER_NOT_FOUND": PASSING,
        "TOPIC_DELETION_DISABLED": LASTING,
        "FENCED_LEADER_EPOCH": PASSING,
        "UNKNOWN_LEADER_EPOCH": PASSING,
        "UNSUPPORTED_COMPRESSION_TYPE": LASTING,
        "STALE_BROKER_EPOCH": PASSING,
        "OFFSET_NOT_AVAILABLE": PASSING,
        "MEMBER_ID_REQUIRED": LASTING,
        "PREFERRED_LEADER_NOT_AVAILABLE": PASSING,
        "GROUP_MAX_SIZE_REACHED": LASTING,
        "FENCED_INSTANCE_ID": LASTING,
        "ELIGIBLE_LEADERS_NOT_AVAILABLE": PASSING,
        "ELECTION_NOT_NEEDED": LASTING,
        "NO_REASSIGNMENT_IN_PROGRESS": LASTING,
        "GROUP_SUBSCRIBED_TO_TOPIC": LASTING,
        "INVALID_RECORD": MESSAGE,
        "UNSTABLE_OFFSET_COMMIT": LASTING,
        "THROTTLING_QUOTA_EXCEEDED": PASSING,
        "PRODUCER_FENCED": FATAL,
        "RESOURCE_NOT_FOUND": LASTING,
        "DUPLICATE_RESOURCE": LASTING,
        "UNACCEPTABLE_CREDENTIAL": BROKER,
        "INCONSISTENT_VOTER_SET": LASTING,
        "INVALID_UPDATE_VERSION": LASTING,
        "FEATURE_UPDATE_FAILED": LASTING,
        "PRINCIPAL_DESERIALIZATION_FAILURE": BROKER,
        "UNKNOWN_TOPIC_ID": LASTING,
        "INCONSISTENT_TOPIC_ID": LASTING,
        "FENCED_MEMBER_EPOCH": LASTING,
        "UNRELEASED_INSTANCE_ID": LASTING,
        "UNSUPPORTED_ASSIGNOR": LASTING,
        "STALE_MEMBER_EPOCH": LASTING,
        "MISMATCHED_ENDPOINT_TYPE": PASSING,
        "UNSUPPORTED_ENDPOINT_TYPE": LASTING,
        "UNKNOWN_CONTROLLER_ID": PASSING,
        "UNKNOWN_SUBSCRIPTION_ID": LASTING,
        "TELEMETRY_TOO_LARGE": LASTING,
        "INVALID_REGISTRATION": PASSING,
        "TRANSACTION_ABORTABLE": PASSING,
        "INVALID_RECORD_STATE": LASTING,
        "SHARE_SESSION_NOT_FOUND": LASTING,
        "INVALID_SHARE_SESSION_EPOCH": LASTING,
        "FENCED_STATE_EPOCH": LASTING,
        "INVALID_VOTER_KEY": LASTING,
        "DUPLICATE_VOTER": LASTING,
        "VOTER_NOT_FOUND": LASTING,
        "INVALID_REGULAR_EXPRESSION": LASTING,
        "REBOOTSTRAP_REQUIRED": PASSING,
        "STREAMS_INVALID_TOPOLOGY": LASTING,
        "STREAMS_INVALID_TOPOLOGY_EPOCH": LASTING,
        "STREAMS_TOPOLOGY_FENCED": LASTING,
        "SHARE_SESSION_LIMIT_REACHED": LASTING,
    }
)
"""Every error code by name, in the order of the codes."""
