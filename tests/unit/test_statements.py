"""The SQL files: named by what they do, headed by what they lock, filled without surprises."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from bridge.database.migration_sets import INBOX
from bridge.database.migrations import Migrator
from bridge.database.statements import load
from bridge.database.template import advisory_class, render_query, render_script, wake_channel

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "bridge").rglob("queries/*.sql"))
NAMES = [path.stem for path in (ROOT / "bridge/database/queries").glob("*.sql")]
PEOPLE = {"list_open", "list_newest", "list_oldest", "show_row", "list_audit"}

SCHEMAS = ["public", "Mixed Case", 'with"quote', "per%cent", "ünïcode", "x" * 63, "or'phan"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_says_first_what_it_locks(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    head = []
    for line in lines:
        if not line.startswith("--"):
            break
        head.append(line.removeprefix("--").strip())
    assert len(head[0]) > 10
    assert "Lock" in " ".join(head)
    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", path.stem), "verb_noun"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_keywords_are_lower_case_and_tables_are_qualified(path: Path) -> None:
    code = re.sub(r"--.*|'[^']*'", "", path.read_text(encoding="utf-8"))
    assert not re.search(r"\b(SELECT|FROM|WHERE|UPDATE|DELETE|INSERT|WITH|AND)\b", code)
    assert not re.search(
        r'(?<!":)(?<!"\.)\bapp_outbox(?!_migration)\w*\b(?<!_idx)(?<!_pkey)',
        code.replace(':"schema".app_outbox', ""),
    ), 'not in :"schema"'


def test_every_statement_is_used() -> None:
    used = set()
    for path in (ROOT / "bridge").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)
    assert [name for name in NAMES if name not in used] == []


@pytest.mark.parametrize("name", NAMES)
def test_statements_are_one_statement_without_comments_at_its_ends(name: str) -> None:
    text = load(name, "public").decode()
    assert text.split(None, 1)[0] in {"select", "with", "insert", "update", "delete", "lock"}
    assert not text.endswith(";")
    assert ";" not in re.sub(r"'[^']*'", "", text)
    assert load(name, "public") is load(name, "public")


def test_a_name_without_file_is_a_mistake_in_the_code() -> None:
    with pytest.raises(FileNotFoundError):
        load("no_such_statement", "public")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_schema_is_quoted_and_percent_signs_survive(schema: str) -> None:
    query = render_query("select '50%', :'name'::text from :\"schema\".t where a % 2 = 1", schema)
    quoted = sql.Identifier(schema).as_string(None).replace("%", "%%")
    assert query.decode() == f"select '50%%', %(name)s::text from {quoted}.t where a %% 2 = 1"
    script = render_script("create table :\"schema\".t (); select :'wake_channel'", schema)
    assert script.startswith(f"create table {sql.Identifier(schema).as_string(None)}.t ();")


@pytest.mark.parametrize("text", ["select 'a'::text", 'select a::"char"', "select '12:30'"])
def test_casts_and_times_are_no_variables(text: str) -> None:
    assert render_query(text, "public").decode() == text
    assert render_script(text, "public") == text


def test_unknown_variables_are_refused() -> None:
    with pytest.raises(KeyError):
        render_script("select :'wake_chanel'", "public")
    for render in (render_script, render_query):
        with pytest.raises(KeyError):
            render('select :"shema"', "public")


@given(st.text(min_size=1, max_size=63))
def test_channels_fit_and_differ(schema: str) -> None:
    channel = wake_channel(schema)
    assert len(channel.encode()) <= 63
    assert channel.startswith("app_outbox_")
    assert wake_channel(schema + "x") != channel


@given(st.text(max_size=63), st.text(max_size=20))
def test_lock_classes_are_signed_32_bit(schema: str, purpose: str) -> None:
    assert -(1 << 31) <= advisory_class(purpose, schema) < 1 << 31


def test_purposes_and_schemas_have_locks_of_their_own() -> None:
    purposes = ("wake", "relay", "lanes", "roll-up", "reconcile", "migrate")
    classes = {advisory_class(purpose, schema) for purpose in purposes for schema in SCHEMAS}
    assert len(classes) == len(purposes) * len(SCHEMAS)


def test_every_statement_can_be_prepared_in_any_schema(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        Migrator(conn, chosen=INBOX).up()  # a consumer's tables have statements, too
        conn.execute('alter schema public rename to "per%cent ""x"""')
        for name in NAMES:
            text = load(name, 'per%cent "x"').decode()
            order = list(dict.fromkeys(re.findall(r"%\(([a-z_]+)\)s", text)))
            for number, parameter in enumerate(order, 1):
                text = text.replace(f"%({parameter})s", f"${number}")
            conn.execute(f"prepare q as {text.replace('%%', '%')}".encode())
            conn.execute("deallocate q")
