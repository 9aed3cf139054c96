"""What is installed is complete: a wheel in a new environment migrates a database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from bridge.database.schema_files import schema_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

# A wheel is built and an environment is made first.
pytestmark = pytest.mark.timeout(400)

CHECKOUT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        env=None if env is None else dict(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that users get: built from the source distribution, without network."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, CHECKOUT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; its dependencies are those of the running one."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(
        sys.executable,
        *("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"),
        *("--disable-pip-version-check", "--no-compile", wheel),
    )
    purelib = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    # A path of another site-packages: its packages can be imported, its own .pth files (the
    # checkout in editable mode) are not read.
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, target in (
        (CHECKOUT / "bridge", "bridge"),
        (CHECKOUT / "schemas", "bridge/_schemas"),
    ):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{target}/{path.relative_to(folder).as_posix()}" in names
    assert "bridge/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "schemas/", "docs/"))]


def test_wheel_announces_the_pytest_plugin(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
    assert "[pytest11]\noutbox_bridge = bridge.testing.plugin" in archive.read(name).decode()


def test_installed_wheel_migrates_a_database(
    environment: Path, empty_database_url: str, tmp_path: Path
) -> None:
    env = {"PATH": os.defpath, "OUTBOX_BRIDGE_DATABASE_URL": empty_database_url}
    program = environment / "bin" / "outbox-bridge"

    def call(*arguments: str) -> str:
        return run(program, *arguments, env=env, cwd=tmp_path)

    where = run(
        environment / "bin" / "python",
        "-c",
        "import bridge, bridge.database.schema_files as s; print(s.schema_directory())",
        cwd=tmp_path,
    )
    assert Path(where.strip()).is_relative_to(environment)
    call("migrate", "up", "--schema", "messaging")
    call("migrate", "verify", "--schema", "messaging")
    status = json.loads(call("migrate", "status", "--schema", "messaging", "--json"))
    assert {migration["state"] for migration in status["migrations"]} == {"applied"}
    with psycopg.connect(empty_database_url) as conn:
        conn.execute(call("migrate", "roles", "--schema", "messaging").encode())
    enqueue = (
        "import os, psycopg, bridge\n"
        "with psycopg.connect(os.environ['OUTBOX_BRIDGE_DATABASE_URL']) as conn:\n"
        "    print(bridge.enqueue(conn, message_key='k', event_type='e', destination='d',"
        " payload={}, schema='messaging').created)\n"
    )
    done = run(environment / "bin" / "python", "-c", enqueue, env=env, cwd=tmp_path)
    assert done == "True\n"


def test_editable_mode_and_checkout_use_the_top_level_files(tmp_path: Path) -> None:
    assert schema_directory() == CHECKOUT / "schemas" / "postgres"
    program = "import bridge.database.schema_files as s; print(s.schema_directory())"
    by_path = run(
        sys.executable,
        "-c",
        program,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        cwd=tmp_path,
    )
    assert by_path.strip() == str(CHECKOUT / "schemas" / "postgres")
