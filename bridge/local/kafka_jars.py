"""Java, and Kafka's jars: fetched once by Maven into the user's cache folder."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from bridge.errors import LocalError
from bridge.local.file_lock import file_lock
from bridge.local.process import LeashedProcess, tail

if TYPE_CHECKING:
    from collections.abc import Callable

_POM = Path(__file__).with_name("pom.xml")
_JAVA_MAJOR = 17
_DOWNLOAD_SECONDS = 900.0
_OTHER_WAYS = (
    "Or set OUTBOX_BRIDGE_LOCAL_KAFKA=mock for librdkafka's mock cluster, or name brokers with "
    "OUTBOX_BRIDGE_LOCAL_BOOTSTRAP_SERVERS."
)


def kafka_version() -> str:
    """Return the version of Kafka that the pom names, such as `4.3.1`."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", _POM.read_text())
    if found is None:
        raise LocalError(f"{_POM} names no Kafka version; install outbox-bridge again.")
    return found[1]


def missing_programs() -> str:
    """Return what this machine lacks to run Kafka and what to do about it; empty if nothing."""
    java = shutil.which("java")
    if java is None:
        return (
            "Kafka needs Java 17 or newer and there is no `java`. Install it (Debian: apt-get "
            f"install -y openjdk-17-jre-headless maven). {_OTHER_WAYS}"
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', answer.stderr)
    if answer.returncode or found is None or int(found[1]) < _JAVA_MAJOR:
        told = answer.stderr.strip().partition("\n")[0] or f"exit code {answer.returncode}"
        return f"Kafka needs Java 17 or newer and `{java} -version` says: {told}. {_OTHER_WAYS}"
    if not _jar_folder().is_dir() and shutil.which("mvn") is None:
        return (
            "Kafka's jars are fetched by Maven and there is no `mvn`. Install it (Debian: apt-get "
            f"install -y maven). {_OTHER_WAYS}"
        )
    return ""


def ensure_jars(progress: Callable[[str], None]) -> Path:
    """Return the folder with Kafka's jars, downloading them if needed; raises LocalError.

    Safe for several processes at once: one downloads, the others wait; a folder that is there is
    complete.
    """
    folder = _jar_folder()
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            progress(f"downloading Apache Kafka {kafka_version()} by Maven into {folder.parent}")
            _download(folder)
    return folder


def _jar_folder() -> Path:
    # The pom's content is part of the name, so that another list of jars is another folder.
    content = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    return platformdirs.user_cache_path("outbox-bridge") / f"kafka-{kafka_version()}-{content}"


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalError(missing_programs())
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as work:
        jars = Path(work) / "jars"
        # A copy, because Maven wants to write next to the pom, and the package may be read-only.
        pom = Path(shutil.copy(_POM, work))
        command = [
            maven,
            "--quiet",
            "--batch-mode",
            f"--file={pom}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        ]
        log = Path(work) / "maven.log"
        download = LeashedProcess(command, log=log, grace=1.0)
        try:
            code = download.wait(_DOWNLOAD_SECONDS)
        finally:
            download.kill()
        if code != 0:
            outcome = "did not end in time" if code is None else f"exit code {code}"
            raise LocalError(
                f"Maven could not download Kafka ({outcome}):\n{tail(log, 6)}\n"
                f"Check the network or Maven's settings.xml and try again. {_OTHER_WAYS}"
            )
        jars.rename(folder)
