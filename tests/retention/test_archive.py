"""Rows are in the archive before they are gone from the outbox."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bridge.database.session import Session
from bridge.errors import OutboxError
from bridge.relay.archive import ArchiveFile
from bridge.relay.pruner import Pruned
from tests.retention.conftest import Conn, ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.retention.conftest import AddFunction, MakePrunerFunction


def test_the_archive_table_holds_each_column_as_it_was(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    add("SENT", days=8, count=3, payload_json='{"a":\n 1}', headers='{"h": "x"}')
    add("CANCELLED", days=8, payload_bytes=b"\x00\xff", ordering_key="k")
    kept = add("SENT", days=1)
    names = [
        row[0]
        for row in conn.execute(
            "select attname from pg_attribute where attrelid = 'app_outbox'::regclass "
            "and attnum > 0 and not attisdropped order by attnum"
        ).fetchall()
    ]
    shown = ", ".join(f"{name}::text" for name in names)
    before = conn.execute(
        f"select {shown} from app_outbox where outbox_id <> %s order by outbox_id".encode(), kept
    ).fetchall()
    assert make_pruner(archive="table").run() == Pruned(sent=3, cancelled=1)
    after = conn.execute(
        f"select {shown} from app_outbox_archive order by outbox_id".encode()
    ).fetchall()
    assert after == before
    assert ids(conn) == kept
    late = conn.execute("select count(*) from app_outbox_archive where archived_at > now()")
    assert late.fetchone() == (0,)


def test_an_id_may_be_archived_twice(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction
) -> None:
    """After a restore of the outbox alone, ids come again."""
    for _ in range(2):
        add("SENT", days=8, outbox_id=1)
        assert make_pruner(archive="table").run() == Pruned(sent=1)
    assert ids(conn, "app_outbox_archive") == [1, 1]


def test_the_archive_file_holds_one_object_a_line(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction, tmp_path: Path
) -> None:
    file = tmp_path / "archive.jsonl"
    rows = add("SENT", days=8, count=3, payload_json='{"a":\r\n 1, "b": "x\\ny"}')
    rows += add("SENT", days=8, payload_bytes=b"\x00\xff", headers='{"h": "ü"}')
    make_pruner(archive="file", archive_file=file, batch_rows=2).run()
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["outbox_id"] for row in written] == rows
    assert written[0]["payload_json"] == {"a": 1, "b": "x\ny"}
    assert written[3]["payload_bytes"] == "\\x00ff"
    assert written[3]["headers"] == {"h": "ü"}
    assert ids(conn) == []

    add("SENT", days=8)
    make_pruner(archive="file", archive_file=file).run()
    assert len(file.read_text().splitlines()) == 5


def test_nothing_is_deleted_that_could_not_be_archived(
    conn: Conn, add: AddFunction, make_pruner: MakePrunerFunction, tmp_path: Path
) -> None:
    rows = add("SENT", days=8, count=3)
    pruner = make_pruner(archive="file", archive_file=tmp_path / "missing" / "archive.jsonl")
    with pytest.raises(OutboxError, match=r"missing/archive\.jsonl.*retention\.archive_file"):
        pruner.run()
    assert ids(conn) == rows


def test_rows_stay_where_the_delete_fails_after_the_archive(
    *,
    conn: Conn,
    session: Session,
    add: AddFunction,
    make_pruner: MakePrunerFunction,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash between the two writes a row twice into the file, and never loses one."""
    file = tmp_path / "archive.jsonl"
    rows = add("SENT", days=8, count=3)
    with monkeypatch.context() as patch:

        def crash(name: str, parameters: object = None) -> list[tuple[object, ...]]:
            if name == "prune_rows":
                raise KeyboardInterrupt
            return Session.rows(session, name, parameters)  # type: ignore[arg-type]  # as given

        patch.setattr(session, "rows", crash)
        with pytest.raises(KeyboardInterrupt):
            make_pruner(archive="file", archive_file=file).run()
    assert ids(conn) == rows
    make_pruner(archive="file", archive_file=file).run()
    written = [json.loads(line)["outbox_id"] for line in file.read_text().splitlines()]
    assert sorted(set(written)) == rows
    assert ids(conn) == []


def test_a_line_that_a_crash_cut_short_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "archive.jsonl"
    file = ArchiveFile(path)
    for torn in (b'{"outbox_id": 3, "payl', b"x" * 200_000):
        path.write_bytes(b'{"outbox_id": 1}\n' + torn)
        assert file.append(['{"outbox_id": 2}']) == 1
        assert path.read_bytes() == b'{"outbox_id": 1}\n{"outbox_id": 2}\n'
    path.write_bytes(b"torn")
    file.append(["{}"])
    assert path.read_bytes() == b"{}\n"


def test_a_failure_while_rows_are_read_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "archive.jsonl"
    path.write_text("{}\n")

    def broken() -> Iterator[str]:
        yield '{"a": 1}'
        raise KeyError

    with pytest.raises(KeyError):
        ArchiveFile(path).append(broken())
    assert path.read_text() == "{}\n"
