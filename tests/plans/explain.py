"""What the planner makes of a statement, and which scans read more than they should."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import psycopg

from bridge.database.statements import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.database.session import Session

Plan = dict[str, Any]

_PARAMETER = re.compile(r"%\((?P<name>[a-z_]+)\)s")


def explain(session: Session, name: str, parameters: Mapping[str, Any]) -> Plan:
    """Return the plan for these very values, without running the statement."""
    query = b"explain (format json) " + load(name, session.schema)
    row = session.connection.execute(query, parameters).fetchone()
    return _plan(row)


def explain_generic(session: Session, name: str, parameters: Mapping[str, Any]) -> Plan:
    """Return the plan for any values: what a prepared statement may end up with."""
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match["name"] not in order:
            order.append(match["name"])
        return f"${order.index(match['name']) + 1}"

    text = _PARAMETER.sub(number, load(name, session.schema).decode()).replace("%%", "%")
    cursor = psycopg.ClientCursor(session.connection)
    cursor.execute("set plan_cache_mode = force_generic_plan")
    cursor.execute(f"prepare hot as {text}".encode())
    try:
        arguments = f"({', '.join(['%s'] * len(order))})" if order else ""
        query = f"explain (format json) execute hot{arguments}"
        cursor.execute(query.encode(), [parameters[name] for name in order])
        return _plan(cursor.fetchone())
    finally:
        cursor.execute("deallocate hot")
        cursor.execute("reset plan_cache_mode")


def run_measured(session: Session, name: str, parameters: Mapping[str, Any]) -> Plan:
    """Run the statement, take it back, and return its plan with the pages that each node read."""
    query = b"explain (analyze, buffers, format json) " + load(name, session.schema)
    with session.connection.transaction(force_rollback=True):
        row = session.connection.execute(query, parameters).fetchone()
    return _plan(row)


def explain_view(connection: psycopg.Connection[Any], view: str, *, measured: bool = False) -> Plan:
    """Return the plan of reading a whole view; `measured` reads it, too."""
    options = "analyze, buffers, format json" if measured else "format json"
    query = f"explain ({options}) select * from {view}"
    return _plan(connection.execute(query.encode()).fetchone())


def pages(plan: Plan) -> int:
    """Return how many pages a measured statement touched."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def nodes(plan: Plan) -> Iterator[Plan]:
    """Walk all nodes of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def walks(plan: Plan, *, whole_queue: bool = False) -> list[str]:
    """Return the scans that read a large table without a condition on an index.

    The claims, lanes and relays are small tables; outbox and queue are not. `whole_queue` allows a
    statement to read the queue as a whole.
    """
    found = []
    for node in nodes(plan):
        table = node.get("Relation Name")
        if table not in {"app_outbox", "app_outbox_queue"} or node["Node Type"] == "ModifyTable":
            continue
        if whole_queue and table == "app_outbox_queue":
            continue
        bounded = "Index Cond" in node or "TID Cond" in node
        if not bounded:
            found.append(f"{node['Node Type']} on {table} {node.get('Index Name', '')}".strip())
        if node.get("Disabled"):
            found.append(f"{node['Node Type']} on {table}, although it is switched off")
    return found


def indexes(plan: Plan) -> set[str]:
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


def _plan(row: Any) -> Plan:
    assert row is not None
    document = row[0] if isinstance(row[0], list) else json.loads(row[0])
    plan: Plan = document[0]["Plan"]
    return plan
