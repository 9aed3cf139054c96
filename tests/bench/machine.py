"""The machine, the versions and the settings that the figures belong to."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import psycopg

from bridge.version import __version__
from tests.bench.debezium import debezium_version

if TYPE_CHECKING:
    from tests.bench.lab import Lab

_CHECKOUT = Path(__file__).resolve().parents[2]


def describe_machine() -> dict[str, Any]:
    """Return hardware, kernel, versions, commit and load at this moment."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _first(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo")) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_first(r"MemTotal:\s*(\d+)", Path("/proc/meminfo"))) / 2**20, 1),
        "load_average_before": [round(value, 2) for value in os.getloadavg()],
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        "outbox_bridge": __version__,
        "commit": _commit(),
        "librdkafka": confluent_kafka.libversion()[0],
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
    }


def describe_parts(lab: Lab, *, peer: bool) -> dict[str, Any]:
    """Return versions of the servers, and every setting of PostgreSQL that is not its default."""
    described: dict[str, Any] = {
        "kafka": lab.kafka.describe(),
        "postgresql": lab.server().local.describe(),
        "postgresql_settings": _settings(lab, logical_wal=False),
    }
    if peer:
        described["debezium"] = debezium_version()
        described["postgresql_settings_for_debezium"] = _settings(lab, logical_wal=True)
    return described


def _settings(lab: Lab, *, logical_wal: bool) -> dict[str, str]:
    with lab.server(logical_wal=logical_wal).connect() as connection:
        rows = connection.execute(
            "select name, current_setting(name) from pg_settings "
            "where (source in ('command line', 'configuration file') or name = any(%s)) "
            "and name <> all(%s) order by name",
            [
                ["fsync", "full_page_writes", "synchronous_commit", "data_checksums", "wal_level"],
                ["config_file", "data_directory", "hba_file", "ident_file", "port"],
            ],
        ).fetchall()
    return {str(name): str(value) for name, value in rows}


def _first(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text())
    return found[1].strip() if found else ""


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return found[1] if found else "unknown"


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    answer = subprocess.run(
        [git, "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=_CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "unknown"
