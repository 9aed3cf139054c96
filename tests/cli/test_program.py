from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.cli.app import _COMMANDS
from bridge.version import __version__

if TYPE_CHECKING:
    from tests.fixtures.cli import RunCliFunction

NOWHERE = {"OUTBOX_BRIDGE_DATABASE_URL": "postgresql://localhost:1/none"}


def test_help_names_every_command(run_cli: RunCliFunction) -> None:
    done = run_cli("--help")
    for name, entry in _COMMANDS.items():
        assert any(
            line.split()[:1] == [name] and line.endswith(entry.line)
            for line in done.stdout.splitlines()
        ), name
    assert done.stderr == ""


def test_every_command_has_help_with_examples_and_json(run_cli: RunCliFunction) -> None:
    for name in _COMMANDS:
        done = run_cli(name, "--help")
        if "Commands:" not in done.stdout:
            assert f"\n    outbox-bridge {name}" in done.stdout, f"{name} has no example"
            assert "--json" in done.stdout
        assert "--config" in done.stdout or "Commands:" in done.stdout


def test_help_loads_only_what_it_needs(cli_env: dict[str, str]) -> None:
    """The wall time under 0.3 s is asserted by what is not imported, not by a clock."""
    heavy = (
        *("rich", "pydantic", "psycopg", "confluent_kafka", "structlog", "aiokafka"),
        *("opentelemetry", "asyncio", "bridge.settings", "bridge.database", "bridge.local"),
    )
    code = (
        "import sys; from bridge.__main__ import main; sys.argv = ['outbox-bridge', '--help']\n"
        "assert main() == 0\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=cli_env, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_help_takes_no_longer_than_a_few_bare_pythons(cli_env: dict[str, str]) -> None:
    def seconds(*command: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], env=cli_env, capture_output=True, check=True)
        return time.perf_counter() - start

    bare, ours = list[float](), list[float]()
    # By turns, and the best of each: what else the machine does must not decide.
    while len(ours) < 3 or min(ours) >= 6 * min(bare):
        assert len(ours) < 15, (bare, ours)
        bare.append(seconds("-c", "import argparse, enum, inspect, logging, subprocess"))
        ours.append(seconds("-m", "bridge", "--help"))


def test_version(run_cli: RunCliFunction) -> None:
    assert run_cli("--version").stdout == f"outbox-bridge {__version__}\n"


def test_console_script_is_the_same_program(cli_env: dict[str, str]) -> None:
    script = Path(sys.executable).with_name("outbox-bridge")
    done = subprocess.run(
        [script, "--version"], env=cli_env, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"outbox-bridge {__version__}\n"


def test_unknown_command_is_a_usage_error_with_the_nearest(run_cli: RunCliFunction) -> None:
    done = run_cli("stauts", check=False)
    assert done.returncode == 2
    assert "did you mean status?" in done.stderr


@pytest.mark.parametrize("arguments", [("status", "--nope"), ("show",), ("list", "--status", "x")])
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], run_cli: RunCliFunction) -> None:
    done = run_cli(*arguments, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage:" in done.stderr


def test_wrong_setting_ends_with_2_and_one_message(run_cli: RunCliFunction) -> None:
    done = run_cli("status", env={"OUTBOX_BRIDGE_RELAY_LEASE": "soon"}, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("outbox-bridge: relay.lease = 'soon' (environment variable ")
    assert done.stderr.count("\n") == 1


def test_unreachable_database_ends_with_1_and_one_message(run_cli: RunCliFunction) -> None:
    done = run_cli("status", env=NOWHERE, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("outbox-bridge: cannot connect to PostgreSQL: ")
    assert done.stderr.count("\n") == 1


def test_missing_schema_ends_with_3_and_the_way_out(
    empty_database_url: str, run_cli: RunCliFunction
) -> None:
    for command in (("status",), ("list",), ("show", "1"), ("relay", "--once")):
        kafka = {"OUTBOX_BRIDGE_KAFKA_BOOTSTRAP_SERVERS": "localhost:1"}
        done = run_cli(*command, env=kafka, check=False)
        assert done.returncode == 3, command
        assert "outbox-bridge migrate up" in done.stderr
        assert "Traceback" not in done.stderr


def test_debug_shows_where_an_error_comes_from(run_cli: RunCliFunction) -> None:
    done = run_cli("--debug", "status", env=NOWHERE, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "cannot connect to PostgreSQL" in done.stderr.splitlines()[-1]


def test_missing_library_names_the_extra(cli_env: dict[str, str], tmp_path: Path) -> None:
    for name, arguments, extra in (
        ("typer", ["--help"], "relay"),
        ("pydantic_settings", ["status"], "relay"),
        ("confluent_kafka", ["relay"], "relay"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('No module named {name}', name='{name}')\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "bridge", *arguments],
            env={**cli_env, **NOWHERE, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3
        assert f"pip install 'outbox-bridge[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_reader_that_goes_away_is_no_error(cli_env: dict[str, str]) -> None:
    """More than a pipe holds, to a reader that closes it at once, and less than that."""
    for arguments, size in ((["config", "show", "--json"], 0), (["--help"], 0)):
        read, write = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "bridge", *arguments],
            env=cli_env,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(write)
        os.read(read, size)
        os.close(read)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 141
        assert errors.replace("settings file: none\n", "") == ""


def on_terminal(env: dict[str, str], *arguments: str) -> str:
    """What a person at a terminal sees."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge", *arguments],
        env={**env, "TERM": "xterm-256color", "COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # how Linux reports that the other end is closed
        while part := os.read(ours, 4096):
            seen += part
    os.close(ours)
    assert process.wait(60) == 0
    return seen.decode()


def test_terminal_gets_a_drawn_table_and_no_color_where_it_is_not_wanted(
    cli_env: dict[str, str],
) -> None:
    color = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;[0-9;]+)m")
    for environment in ({**cli_env, "NO_COLOR": "1"}, {**cli_env, "NO_COLOR": ""}):
        seen = on_terminal(environment, "config", "show")
        assert "───" in seen
        assert "relay.lease" in seen
        if environment["NO_COLOR"]:
            assert not color.search(seen)


def test_config_show_names_value_and_source(run_cli: RunCliFunction, tmp_path: Path) -> None:
    (tmp_path / "outbox-bridge.toml").write_text("[retry]\ncap = '2h'\n[kafka]\nlinger.ms = 7\n")
    environment = {
        "OUTBOX_BRIDGE_RELAY_BATCH_ROWS": "17",
        "OUTBOX_BRIDGE_KAFKA_SASL_PASSWORD": "hunter2",
        "OUTBOX_BRIDGE_DATABASE_URL": "postgresql://app:hunter2@db/shop",
    }
    done = run_cli("config", "show", "--json", "--schema", "outbox", env=environment)
    assert "hunter2" not in done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["file"] == "outbox-bridge.toml"
    shown = {one["name"]: (one["value"], one["source"]) for one in document["settings"]}
    assert shown["retry.cap"] == (7200.0, "file")
    assert shown['kafka."linger.ms"'] == (7, "file")
    assert shown['kafka."sasl.password"'] == ("***", "env")
    assert shown["database.url"] == ("postgresql://app:***@db/shop", "env")
    assert shown["database.schema"] == ("outbox", "cli")
    assert shown["relay.batch_rows"] == (17, "env")
    assert shown["relay.lease"] == (120.0, "default")
    assert shown["kafka.acks"] == ("all", "default")
    text = run_cli("config", "show", env=environment).stdout
    assert "hunter2" not in text
    assert any(line.split()[:3] == ["retry.cap", "7200", "file"] for line in text.splitlines())


def test_config_show_fails_where_the_relay_would(run_cli: RunCliFunction) -> None:
    done = run_cli("config", "show", env={"OUTBOX_BRIDGE_KAFKA_ACKS": "1"}, check=False)
    assert done.returncode == 2
    assert "kafka.acks = 1" in done.stderr
