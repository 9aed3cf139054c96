"""The statements of enqueueing, in order, apart from how they are run.

Each function is a generator that yields statements and is sent their rows: one logic for every
driver, synchronous or not, which only has to execute a statement and fetch its rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from psycopg import sql

from bridge.database.migration_script import check_schema_name
from bridge.database.statements import load
from bridge.draft import Draft
from bridge.duplicates import Content, DuplicateRule
from bridge.errors import EnqueueError, InvalidMessageError

T = TypeVar("T")
Row = tuple[Any, ...]

_ATTEMPTS = 3
_SAVEPOINT = "outbox_bridge_enqueue_many"


class Step(NamedTuple):
    """One statement with psycopg's placeholders; an empty list is sent back where it has no rows.

    Without parameters it is a bare command.
    """

    statement: bytes
    parameters: dict[str, Any] | None = None
    returns_rows: bool = True


Steps = Generator[Step, list[Row], T]


def run_steps(steps: Steps[T], execute: Callable[[Step], list[Row]]) -> T:
    """Run the statements by `execute`, which returns their rows as tuples; bytea may be any buffer.

    What `execute` raises reaches the caller as it is, once the steps have heard of it.
    """
    try:
        step = next(steps)
        while True:
            try:
                rows = execute(step)
            except BaseException as error:
                steps.throw(error)
                raise
            step = steps.send(rows)
    except StopIteration as end:
        return cast("T", end.value)


async def run_steps_async(steps: Steps[T], execute: Callable[[Step], Awaitable[list[Row]]]) -> T:
    """Do what `run_steps` does, with a coroutine."""
    try:
        step = next(steps)
        while True:
            try:
                rows = await execute(step)
            except BaseException as error:
                steps.throw(error)
                raise
            step = steps.send(rows)
    except StopIteration as end:
        return cast("T", end.value)


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """What became of a message.

    `created` is False where a row with its key absorbed it; `outbox_id` is that row's then, and
    `differs` tells whether its content (not its headers) is another one.
    """

    outbox_id: int
    created: bool
    differs: bool


def write_one(draft: Draft, rule: DuplicateRule, schema: str) -> Steps[EnqueueResult]:
    """Insert one message: one statement, two where its key is known."""
    insert = _statement("insert_message", schema)
    for _ in range(_ATTEMPTS):
        rows = yield Step(insert, draft._asdict())
        if rows:
            return EnqueueResult(int(rows[0][0]), created=True, differs=False)
        found = yield from _find([draft.message_key], schema)
        if found:
            return _absorb(draft, rule, found[draft.message_key])
    raise _vanished(draft.message_key)


def write_many(
    drafts: Sequence[Draft], rule: DuplicateRule, schema: str, *, savepoint: bool
) -> Steps[list[EnqueueResult]]:
    """Insert messages with one statement; `savepoint` takes them back where one is refused."""
    if not drafts:
        return []
    firsts: dict[str, Draft] = {}
    differing: set[int] = set()
    for index, draft in enumerate(drafts):
        first = firsts.setdefault(draft.message_key, draft)
        if first is not draft and rule.judge(
            draft.message_key, Content.of(draft), Content.of(first), "earlier in this call"
        ):
            differing.add(index)
    # Under "absorb" nothing is refused once it is written.
    if not savepoint or rule.on_duplicate == "absorb":
        written = yield from _write(firsts, rule, schema)
    else:
        yield _command("savepoint")
        try:
            written = yield from _write(firsts, rule, schema)
        except EnqueueError:
            yield _command("rollback to savepoint")
            yield _command("release savepoint")
            raise
        yield _command("release savepoint")
    results = []
    for index, draft in enumerate(drafts):
        result = written[draft.message_key]
        if firsts[draft.message_key] is not draft:
            result = EnqueueResult(
                result.outbox_id, created=False, differs=index in differing or result.differs
            )
        results.append(result)
    return results


def _write(
    firsts: dict[str, Draft], rule: DuplicateRule, schema: str
) -> Steps[dict[str, EnqueueResult]]:
    insert = _statement("insert_messages", schema)
    sequence = sql.Identifier(schema, "app_outbox_outbox_id_seq").as_string(None)
    results: dict[str, EnqueueResult] = {}
    missing = list(firsts.values())
    for _ in range(_ATTEMPTS):
        columns: dict[str, Any] = {
            name: [draft[position] for draft in missing]
            for position, name in enumerate(Draft._fields)
        }
        rows = yield Step(insert, columns | {"sequence": sequence})
        for key, outbox_id in rows:
            results[str(_text(key))] = EnqueueResult(int(outbox_id), created=True, differs=False)
        missing = [draft for draft in missing if draft.message_key not in results]
        if missing:
            found = yield from _find([draft.message_key for draft in missing], schema)
            for draft in missing:
                if draft.message_key in found:
                    results[draft.message_key] = _absorb(draft, rule, found[draft.message_key])
            missing = [draft for draft in missing if draft.message_key not in results]
        if not missing:
            return results
    raise _vanished(missing[0].message_key)


class _Stored(NamedTuple):
    outbox_id: int
    content: Content


def _find(keys: list[str], schema: str) -> Steps[dict[str, _Stored]]:
    rows = yield Step(_statement("find_messages", schema), {"message_keys": keys})
    found = {}
    for row in rows:
        texts = [_text(value) for value in (row[0], *row[2:6])]
        key, destination, event_type, ordering_key, content_type = texts
        content = Content(
            str(destination),
            str(event_type),
            ordering_key,
            content_type,
            *(None if value is None else bytes(value) for value in row[6:8]),
        )
        found[str(key)] = _Stored(int(row[1]), content)
    return found


def _text(value: str | bytes | None) -> str | None:
    # psycopg leaves text as bytes where client_encoding is SQL_ASCII.
    return value.decode() if isinstance(value, bytes) else value


def _absorb(draft: Draft, rule: DuplicateRule, stored: _Stored) -> EnqueueResult:
    differs = rule.judge(
        draft.message_key, Content.of(draft), stored.content, f"outbox_id {stored.outbox_id}"
    )
    return EnqueueResult(stored.outbox_id, created=False, differs=differs)


@lru_cache(maxsize=64)
def _statement(name: str, schema: str) -> bytes:
    if not isinstance(schema, str):
        raise InvalidMessageError(f"schema must be str, not {type(schema).__name__}")
    return load(name, check_schema_name(schema))


def _command(command: str) -> Step:
    return Step(f"{command} {_SAVEPOINT}".encode(), returns_rows=False)


def _vanished(message_key: str) -> EnqueueError:
    return EnqueueError(
        f"the row that holds message_key {message_key!r} vanished {_ATTEMPTS} times "
        "(deleted by another session); roll back and run the transaction again"
    )
