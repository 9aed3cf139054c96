"""Checks of the tables' upkeep: autovacuum, dead rows, HOT updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.doctor.finding import Outcome, ok, problem
from bridge.doctor.words import counted, listed, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.database import Database

UPKEEP = {
    "app_outbox": {
        "fillfactor": "42",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    "app_outbox_queue": {
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "2000",
        "autovacuum_vacuum_cost_delay": "0",
    },
    "app_outbox_counter": {
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "500",
        "autovacuum_vacuum_cost_delay": "0",
    },
    "app_outbox_claim": {
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "500",
        "autovacuum_vacuum_cost_delay": "0",
    },
}
"""Storage options that the migrations set on the busy tables; other values are a choice, none "
"is not."""

CHANGING = (
    "status",
    "claim_count",
    "claim_id",
    "locked_by",
    "locked_at",
    "sent_partition",
    "sent_offset",
    "sent_topic",
    "sent_at",
    "updated_at",
)
"""Columns that claim and settle change."""

_OFF = frozenset({"off", "false", "no", "0"})
_TIMES = 10
"""How often what autovacuum waits for may be dead before it counts."""
_ROOM = 60
"""Highest fillfactor that leaves room for the two new versions of a row."""


def autovacuum(database: Database) -> Iterator[Outcome]:
    """Whether the server vacuums by itself, and the busy tables as often as they need it."""
    with database.transaction():
        server = database.row("read_vacuum_settings")
        tables = database.rows("list_tables", {"schema_name": database.schema})
    good = True
    for is_set, name in ((server.is_on, "autovacuum"), (server.counts, "track_counts")):
        if not is_set:
            good = False
            yield problem(
                f"{name} is off for the whole server: dead rows stay, and claims get slower",
                f"alter system set {name} = on; select pg_reload_conf()",
            )
    switched_off = [t.table_name for t in tables if _options(t).get("autovacuum_enabled") in _OFF]
    if switched_off:
        good = False
        yield problem(
            f"autovacuum is switched off for {listed(switched_off)}",
            "; ".join(
                f'alter table "{database.schema}".{table} reset (autovacuum_enabled)'
                for table in switched_off
            ),
        )
    for table in tables:
        wanted = UPKEEP.get(table.table_name, {})
        lost = [
            name for name in wanted if name.startswith("autovacuum") and name not in _options(table)
        ]
        if lost:
            good = False
            values = ", ".join(f"{name} = {wanted[name]}" for name in lost)
            yield problem(
                f"{table.table_name} has lost {listed(lost)}: it is vacuumed too seldom",
                f'alter table "{database.schema}".{table.table_name} set ({values})',
            )
    old = [t for t in tables if t.frozen_age > server.freeze_age]
    if old:
        good = False
        yield problem(
            f"{listed([t.table_name for t in old])} should have been frozen: autovacuum does not "
            "keep up, and the server stops writing when transaction ids run out",
            "vacuum (freeze) these tables, and see what keeps autovacuum from it",
        )
    if good:
        yield ok(f"on, for {counted(len(tables), 'outbox table')}")


def dead_rows(database: Database) -> Iterator[Outcome]:
    """Whether autovacuum keeps up with the busy tables."""
    with database.transaction():
        server = database.row("read_vacuum_settings")
        tables = database.rows("list_tables", {"schema_name": database.schema})
    most, good = None, True
    for table in tables:
        if most is None or table.dead_rows > most.dead_rows:
            most = table
        options = _options(table)
        threshold = float(options.get("autovacuum_vacuum_threshold", server.threshold))
        factor = float(options.get("autovacuum_vacuum_scale_factor", server.scale_factor))
        due = threshold + factor * table.live_rows
        if table.dead_rows < max(database.limits.dead_rows, _TIMES * due):
            continue
        good = False
        vacuumed = table.vacuumed_seconds
        when = "never" if vacuumed is None else f"{span(vacuumed)} ago"
        yield problem(
            f"{table.table_name} has {table.dead_rows:,} dead rows beside {table.live_rows:,} live "
            f"ones; autovacuum is due at {due:,.0f}, the last vacuum was {when}",
            "See the verdicts on long-transactions and replication-slots: what is open keeps "
            "dead rows. "
            f'Otherwise: vacuum "{database.schema}".{table.table_name}',
        )
    if good and most is not None:
        yield ok(f"{counted(most.dead_rows, 'dead row')} at most ({most.table_name})")


def hot_updates(database: Database) -> Iterator[Outcome]:
    """Whether claim and settle leave the indexes alone."""
    with database.transaction():
        indexes = database.rows(
            "list_cold_indexes", {"schema_name": database.schema, "columns": list(CHANGING)}
        )
        tables = database.rows("list_tables", {"schema_name": database.schema})
    (outbox,) = (table for table in tables if table.table_name == "app_outbox")
    good = True
    for index in indexes:
        good = False
        yield problem(
            f"index {index.index_name} mentions {listed(index.columns)}, which each message "
            "changes "
            "twice: no update is HOT, each writes the whole row and every index again",
            f'drop index concurrently "{database.schema}".{index.index_name}; the views of '
            "docs/monitoring.md find the same rows",
        )
    room = int(_options(outbox).get("fillfactor", "100"))
    if room > _ROOM:
        good = False
        yield problem(
            f"app_outbox has fillfactor {room}: its pages have no room for two new versions of a "
            "row",
            f'alter table "{database.schema}".app_outbox set (fillfactor = 42)',
        )
    share = outbox.hot_updates / outbox.updates if outbox.updates else 1.0
    evidence = f"{share:.1%} of {counted(outbox.updates, 'update')} of app_outbox were HOT"
    if not good:
        return
    if outbox.updates >= database.limits.hot_updates and share < database.limits.hot_share:
        yield problem(
            evidence,
            "Dead versions are not pruned in time: see long-transactions and replication-slots. "
            "After the cause "
            "is gone, pg_stat_reset_single_table_counters('app_outbox'::regclass) counts anew.",
        )
    else:
        yield ok(evidence)


def _options(table: Any) -> dict[str, str]:
    return dict(option.split("=", 1) for option in table.options)
