"""Follows the audit's hash chain and tells where somebody broke it.

Each link holds the SHA-256 of the hash before it and of its entry's text. Whoever changes or
deletes an entry, the owner of the tables too, breaks the chain there. One who also computes all
later hashes anew leaves a chain that holds, but with another head: so note the head now and then
where the database's owner cannot write (a ticket, the log of another machine) and give it to
`verify_audit`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.rows import tuple_row

from bridge.database.reading import one_snapshot
from bridge.database.statements import load
from bridge.errors import InvalidOperationError
from bridge.operations.versions import needs_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg


GENESIS = bytes(32)
"""The hash before the first link."""

_STEP = 5_000
_KEPT = 100


class Head(NamedTuple):
    """A place in the chain and the hash there, written `position:hash` (hexadecimal)."""

    position: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.position}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read what `str` wrote. Raises InvalidOperationError."""
        position, _, digest = text.strip().partition(":")
        try:
            head = cls(int(position), bytes.fromhex(digest))
        except ValueError:
            head = cls(-1, b"")
        if head.position < 0 or len(head.hash) != len(GENESIS):
            raise InvalidOperationError(
                f"{text!r} is no head of the audit; it is written as 4711:<64 hexadecimal digits>"
            )
        return head


class Flaw(NamedTuple):
    """One place where the chain does not hold; `audit_id` is None where no entry is known."""

    position: int | None
    audit_id: int | None
    what: str


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What following the chain showed; `flaws` are the first `_KEPT` of `flaw_count`.

    `passed_known_head` is False where none was given, and where pruning took that place away.
    """

    entries: int
    first_position: int | None
    head: Head
    flaw_count: int
    flaws: tuple[Flaw, ...]
    passed_known_head: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return self.flaw_count == 0


def verify_audit(
    conn: psycopg.Connection[Any],
    schema: str = "public",
    *,
    known_head: Head | None = None,
    on_progress: Callable[[int], None] = lambda _entries: None,
) -> ChainReport:
    """Follow the whole chain, in one snapshot; the connection must have no transaction open.

    `known_head`: one noted earlier, which the chain must still pass through. `on_progress` hears
    how many entries were checked. Raises SchemaError where the schema is older than the chain, and
    psycopg's errors.
    """
    with needs_schema(schema, "audit verify"), one_snapshot(conn):
        walk = _Walk(conn, schema, known_head)
        return walk.report(on_progress)


class _Walk:
    """One walk along the chain."""

    def __init__(self, conn: psycopg.Connection[Any], schema: str, known_head: Head | None) -> None:
        self._conn = conn
        self._schema = schema
        self._known = known_head
        self._flaws: list[Flaw] = []
        self._flaw_count = 0
        self._entries = 0
        # Before the first link every chain is the same.
        self._passed = known_head == Head(0, GENESIS)
        self._last = Head(0, GENESIS)

    def report(self, on_progress: Callable[[int], None]) -> ChainReport:
        first: int | None = None
        for position, audit_id, prev_hash, digest, text in self._links():
            if first is None:
                first = position
                self._check_start(position, audit_id, bytes(prev_hash))
            elif position != self._last.position + 1:
                self._flaw(
                    position,
                    audit_id,
                    f"links {self._last.position + 1} to {position - 1} are gone",
                )
            elif bytes(prev_hash) != self._last.hash:
                self._flaw(position, audit_id, "the link does not follow the one before it")
            if text is None:
                self._flaw(position, audit_id, "the entry is gone")
            elif hashlib.sha256(bytes(prev_hash) + bytes(text)).digest() != bytes(digest):
                self._flaw(position, audit_id, "entry or link was changed")
            self._last = Head(position, bytes(digest))
            self._compare_known(audit_id)
            self._entries += 1
            if self._entries % _STEP == 0:
                on_progress(self._entries)
        self._check_end()
        return ChainReport(
            self._entries,
            first,
            self._last,
            self._flaw_count,
            tuple(self._flaws),
            passed_known_head=self._passed,
        )

    def _links(self) -> Iterator[tuple[Any, ...]]:
        after = -(2**63)
        while rows := self._rows("read_audit_chain", {"after": after, "row_limit": _STEP}):
            yield from rows
            after = rows[-1][0]

    def _check_start(self, position: int, audit_id: int, prev_hash: bytes) -> None:
        """Check that the chain begins at 1, or where a pruning says that it ended."""
        if position == 1:
            if prev_hash != GENESIS:
                self._flaw(position, audit_id, "the first link does not begin the chain")
            return
        anchor = {"position": str(position - 1), "hash": prev_hash.hex()}
        if not self._rows("find_audit_anchor", anchor):
            self._flaw(
                position, audit_id, f"links up to {position - 1} are gone, and no pruning took them"
            )

    def _compare_known(self, audit_id: int) -> None:
        known = self._known
        if known is None or known.position != self._last.position:
            return
        self._passed = known == self._last
        if not self._passed:
            self._flaw(known.position, audit_id, "the chain has another hash here than was noted")

    def _check_end(self) -> None:
        rows = self._rows("read_audit_head")
        if not rows:
            self._flaw(None, None, "the head of the chain is gone")
        elif self._entries == 0:
            if rows[0][0] != 0:
                self._flaw(
                    None, None, f"links up to {rows[0][0]} are gone, and no pruning took them"
                )
            self._last = Head(rows[0][0], bytes(rows[0][1]))
        elif Head(rows[0][0], bytes(rows[0][1])) != self._last:
            self._flaw(
                rows[0][0], None, f"the chain ends at {self._last.position}, its head is elsewhere"
            )
        if self._known is not None and self._known.position > self._last.position:
            self._flaw(
                self._known.position,
                None,
                f"the chain ends at {self._last.position}, before the noted head",
            )
        for (audit_id,) in self._rows("find_unlinked_audit", {"row_limit": _KEPT}):
            self._flaw(None, audit_id, "the entry was written past the chain")

    def _flaw(self, position: int | None, audit_id: int | None, what: str) -> None:
        self._flaw_count += 1
        if len(self._flaws) < _KEPT:
            self._flaws.append(Flaw(position, audit_id, what))

    def _rows(self, name: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with self._conn.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(load(name, self._schema), parameters or {}).fetchall()
