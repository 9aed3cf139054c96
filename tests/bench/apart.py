"""`apart`: the pace of a healthy destination beside one that takes nothing."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from tests.bench import outbox
from tests.bench.figures import RATIO, Findings, at_least, ratios
from tests.bench.relay_process import RelayProcess
from tests.bench.topic import TopicReader, await_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.lab import Lab
    from tests.bench.sizes import Sizes

_PATIENCE = 300.0


def run(lab: Lab, sizes: Sizes, peer: Path | None) -> Findings:
    """Drain alone and beside a backlog whose topic asks for more replicas than there are."""
    del peer
    found = Findings("apart")
    alone: list[float] = []
    beside: list[float] = []
    for number in range(sizes.pairs):
        for side in (alone, beside) if number % 2 == 0 else (beside, alone):
            name = "beside a sick destination" if side is beside else "alone"
            lab.progress(f"apart {number + 1}/{sizes.pairs}: {name}")
            pace = _pace(lab, sizes, is_beside=side is beside)
            found.runs.append({"case": name, "rows_per_second": pace})
            side.append(pace)
    found.add("healthy destination alone", alone, "/s")
    name = f"the same beside {sizes.sick_rows:,} rows of a topic below its in-sync replicas"
    found.add(name, beside, "/s")
    found.add("ratio beside the sick destination", ratios(beside, alone), RATIO, at_least(0.9))
    return found


def _pace(lab: Lab, sizes: Sizes, *, is_beside: bool) -> float:
    """Return the rows a second of the healthy topic, by the broker's clock."""
    server = lab.server()
    with ExitStack() as stack:
        database = stack.enter_context(server.database())
        healthy = stack.enter_context(lab.topic())
        sick = stack.enter_context(lab.topic({"min.insync.replicas": "2"}))
        outbox.migrate(server, database)
        with server.connect(database) as connection:
            if is_beside:
                outbox.fill(connection, sick, sizes.sick_rows)
            outbox.fill(connection, healthy, sizes.scale_rows, first=sizes.sick_rows + 1)
            outbox.settle_down(connection)
        with RelayProcess(
            server.url(database), lab.kafka.bootstrap_servers, folder=lab.new_folder("relay")
        ):
            await_records(lab.kafka.bootstrap_servers, healthy, sizes.scale_rows, _PATIENCE)
        with closing(TopicReader(lab.kafka.bootstrap_servers, healthy)) as reader:
            return reader.read().per_second
