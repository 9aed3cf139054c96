"""Counts what happened, each number from its own source, once everything has come to rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from bridge.demo.figures import Figures
from bridge.demo.receipts import count_inversions, percentile, receipts_of, repeated_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.demo.receipts import Receipt
    from bridge.demo.relays import Kill
    from bridge.demo.stage import Stage


@dataclass(frozen=True, slots=True)
class Evidence:
    """What only the one who played knows; the acts are those of the shop's notes."""

    kill: Kill | None
    kills: int
    rescue_seconds: float | None
    backlog_act: str
    relays_up_ns: int
    steady_act: str
    steady_rate: float
    unclean_relays: tuple[str, ...]


def count_figures(
    stage: Stage, evidence: Evidence, *, messages_asked: int, seconds: float
) -> Figures:
    """Read the notes of shop and consumer and the database, and put them side by side."""
    notes: dict[str, Any] = orjson.loads((stage.folder / "shop.json").read_bytes())
    receipts = receipts_of(orjson.loads((stage.folder / "consumer.json").read_bytes()))
    rolled_back: set[str] = set(notes["rolled_back"])
    rows = stage.observer.counts(rolled_back)
    # What the shop was told is committed must come, whatever the database says now.
    committed = stage.observer.keys() | {key for _, key, _ in notes["committed"]}
    received = {receipt.message_key for receipt in receipts}
    repeated = repeated_ids(receipts)
    in_flight = evidence.kill.outbox_ids if evidence.kill else frozenset[int]()
    first_seen = _first_seen(receipts)
    backlog = _keys_of(notes, evidence.backlog_act)
    latencies = _latencies(notes, evidence.steady_act, first_seen)
    return Figures(
        broker=stage.parts.broker,
        is_real_kafka=stage.parts.is_real,
        database=stage.parts.database,
        messages_asked=messages_asked,
        **rows._asdict(),
        rollbacks=notes["rollbacks"],
        rolled_back=len(rolled_back),
        enqueued_twice=notes["enqueued_twice"],
        absorbed=notes["absorbed"],
        records_in_topics=stage.consumer.facts["records_in_topics"],
        received=len(receipts),
        received_distinct=len(received),
        lost=len(committed - received),
        phantoms=len(received - committed),
        rolled_back_received=len(received & rolled_back),
        duplicates=len(repeated),
        stray_duplicates=sum(outbox_id not in in_flight for outbox_id in repeated),
        inversions=count_inversions(receipts),
        ordered=len({r.message_key for r in receipts if r.ordering_key is not None}),
        kills=evidence.kills,
        in_flight_at_kill=len(in_flight),
        rescue_seconds=evidence.rescue_seconds,
        unclean_relays=evidence.unclean_relays,
        backlog=len(backlog),
        throughput=_throughput(
            [first_seen[key] for key in backlog if key in first_seen], evidence.relays_up_ns
        ),
        latency_messages=len(latencies),
        latency_rate=evidence.steady_rate,
        latency_p50_ms=percentile(latencies, 0.5),
        latency_p99_ms=percentile(latencies, 0.99),
        seconds=seconds,
    )


def _keys_of(notes: dict[str, Any], act: str) -> list[str]:
    return [key for played, key, _ in notes["committed"] if played == act]


def _first_seen(receipts: Sequence[Receipt]) -> dict[str, int]:
    seen: dict[str, int] = {}
    for receipt in receipts:
        seen.setdefault(receipt.message_key, receipt.received_ns)
    return seen


def _throughput(times_ns: Sequence[int], since_ns: int) -> float | None:
    """Messages a second until the last receipt."""
    if not times_ns or max(times_ns) <= since_ns:
        return None
    return len(times_ns) / ((max(times_ns) - since_ns) / 1e9)


def _latencies(notes: dict[str, Any], act: str, first_seen: dict[str, int]) -> list[float]:
    """Milliseconds from the commit's return in the shop to the first receipt."""
    return [
        (first_seen[key] - committed_ns) / 1e6
        for played, key, committed_ns in notes["committed"]
        if played == act and key in first_seen
    ]
