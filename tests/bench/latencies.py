"""One latency measurement: writers in an open loop, a sender, and a consumer's clock."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.bench import outbox
from tests.bench.figures import BenchError, percentile
from tests.bench.pgbench import Writers
from tests.bench.topic import await_records

if TYPE_CHECKING:
    from types import TracebackType

    from tests.bench.lab import Lab, Server
    from tests.bench.sizes import Sizes

_CONNECTIONS = 16
_CHECKOUT = Path(__file__).resolve().parents[2]
_END_SECONDS = 60.0
_WARM_UP_SECONDS = 120.0
SLOW_RATE = 60
SLOW_MS = 30

_PAD = "delivery as agreed by phone, to the back door " * 10

# The clock is read when the row is made, in the statement that also commits: the commit's own flush
# is part of what is measured.
_FAST = """\\set n random(1, 9000000000000000000)
insert into app_outbox (message_key, event_type, destination, payload_json)
values ('order-' || :n::bigint, 'order.created', '{topic}',
    ('{{"t":' || extract(epoch from clock_timestamp()) || ',"n":' || :n::bigint
    || ',"note":"{pad}"}}')::json);
"""

# The row waits for its commit; the time is taken by the last statement before COMMIT.
_SLOW = """\\set n random(1, 9000000000000000000)
begin;
insert into app_outbox (message_key, event_type, destination, payload_json)
values ('order-' || :n::bigint, 'order.created', '{topic}',
    ('{{"t":0,"n":' || :n::bigint || ',"note":"{pad}"}}')::json);
\\sleep {milliseconds} ms
insert into bench_commit (n, at) values (:n::bigint, clock_timestamp());
commit;
"""

_COMMIT_TABLE = "create unlogged table bench_commit (n bigint not null, at timestamptz not null)"


@dataclass(frozen=True)
class Latency:
    """Milliseconds from just before the commit to the consumer, behind the warm-up.

    `rate` is what was asked for, `commits_per_second` what the writers reached. `slow_*`: rows of
    transactions that were held open, None where there were none.
    """

    side: str
    rate: int
    commits_per_second: float
    samples: int
    p50_ms: float
    p99_ms: float
    slow_samples: int = 0
    slow_p50_ms: float | None = None
    slow_p99_ms: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def measure(
    lab: Lab,
    server: Server,
    database: str,
    topic: str,
    *,
    side: str,
    rate: int,
    sizes: Sizes,
    slow: bool = False,
) -> Latency:
    """Write while a sender runs, and see each record arrive.

    First a backlog goes through, so that caches are filled and a JVM has compiled what it runs; the
    first seconds of the open loop do not count either. Raises BenchError where a committed row did
    not arrive.
    """
    folder = lab.new_folder("latency")
    warm_up = sizes.warm_up_seconds
    seconds = warm_up + sizes.latency_seconds
    with ExitStack() as stack:
        connection = stack.enter_context(server.connect(database))
        connection.execute(_COMMIT_TABLE)
        outbox.fill(connection, topic, sizes.warm_up_rows)
        await_records(lab.kafka.bootstrap_servers, topic, sizes.warm_up_rows, _WARM_UP_SECONDS)
        reader = stack.enter_context(_Reader(lab.kafka.bootstrap_servers, topic, folder / "read"))
        writers = [
            stack.enter_context(
                Writers(
                    server,
                    database,
                    script.format(topic=topic, pad=_PAD[:430], milliseconds=SLOW_MS),
                    connections=_CONNECTIONS,
                    seconds=seconds,
                    folder=lab.new_folder("writers"),
                    rate=wanted,
                )
            )
            for script, wanted in [(_FAST, rate), *([(_SLOW, SLOW_RATE)] if slow else [])]
        ]
        commits = [each.commits() for each in writers]
        arrivals = reader.finish()
        committed: dict[int, float] = dict(
            connection.execute(
                "select n, extract(epoch from at)::double precision from bench_commit"
            ).fetchall()
        )
    numbers = {number for _, _, number in arrivals}
    if len(numbers) != sum(commits):
        raise BenchError(
            f"{sum(commits)} rows committed, {len(numbers)} arrived ({side}, {rate}/s)"
        )
    start = min(at or committed[number] for _, at, number in arrivals) + warm_up
    fast = [(arrived - at) * 1e3 for arrived, at, _ in arrivals if at > start]
    held = [
        (arrived - committed[number]) * 1e3
        for arrived, at, number in arrivals
        if not at and committed[number] > start
    ]
    return Latency(
        side=side,
        rate=rate,
        commits_per_second=sum(commits) / seconds,
        samples=len(fast),
        p50_ms=percentile(fast, 0.5),
        p99_ms=percentile(fast, 0.99),
        slow_samples=len(held),
        slow_p50_ms=percentile(held, 0.5) if held else None,
        slow_p99_ms=percentile(held, 0.99) if held else None,
    )


class _Reader:
    """The consumer's process; `finish` returns [arrived, committed, number] of each record."""

    def __init__(self, bootstrap_servers: str, topic: str, file: Path) -> None:
        self._file = file
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.latency_reader",
                bootstrap_servers,
                topic,
                str(file),
            ],
            cwd=_CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise BenchError("the consumer did not start; see what it said above")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def finish(self) -> list[tuple[float, float, int]]:
        try:
            self._process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise BenchError("records still arrive a minute after the last commit") from late
        if self._process.returncode:
            raise BenchError(f"the consumer ended with exit code {self._process.returncode}")
        rows: list[tuple[float, float, int]] = json.loads(self._file.read_text())
        return rows
