"""Other languages' compilers and libraries, for the snippets; fetched once, then kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import pytest

from bridge.local.file_lock import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable

_FILES = Path(__file__).parent / "languages"
_PACKAGES = {
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang-go",
    "node": "nodejs",
    "npm": "npm",
}


def need(*programs: str) -> None:
    """Skip where a program is missing, with the command that installs it."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(_PACKAGES[program] for program in missing)
        pytest.skip(f"needs {', '.join(missing)}; as root run: apt-get install -y {packages}")


def run(*command: str | Path, cwd: Path) -> str:
    """Run to the end and return stdout; the test fails with the output where it returns not 0."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"{command[0]} returned {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def java_libraries() -> Path:
    """Return a folder with the jars of `pom.xml`."""

    def fetch(folder: Path) -> None:
        shutil.copy(_FILES / "pom.xml", folder)
        goal = (
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={folder}",
        )
        run("mvn", "--quiet", "--batch-mode", *goal, cwd=folder)

    return _kept("java", ("pom.xml",), fetch)


def node_libraries() -> Path:
    """Return a folder with the `node_modules` of `npm-shrinkwrap.json`."""

    def fetch(folder: Path) -> None:
        _copy(("package.json", "npm-shrinkwrap.json"), folder)
        run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)

    return _kept("node", ("npm-shrinkwrap.json",), fetch)


def go_program(source: str, folder: Path) -> Path:
    """Compile a `main` package with the modules of `go.mod`; Go keeps what it has built."""
    _copy(("go.mod", "go.sum"), folder)
    (folder / "main.go").write_text(source)
    program = folder / "program"
    run("go", "build", "-mod=readonly", "-o", program, ".", cwd=folder)
    return program


def typescript_program(source: str, folder: Path) -> Path:
    """Compile a module, strictly checked, beside the `node_modules` that it needs."""
    libraries = node_libraries() / "node_modules"
    (folder / "node_modules").symlink_to(libraries)
    (folder / "program.mts").write_text(source)
    options = ("--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext")
    compiler = libraries / "typescript" / "bin" / "tsc"
    run("node", compiler, *options, "--types", "node", "program.mts", cwd=folder)
    return folder / "program.mjs"


def _copy(names: tuple[str, ...], folder: Path) -> None:
    for name in names:
        shutil.copy(_FILES / name, folder)


def _kept(language: str, names: tuple[str, ...], fetch: Callable[[Path], None]) -> Path:
    # The list's content is part of the name, so that another list is another folder.
    content = b"".join((_FILES / name).read_bytes() for name in names)
    label = f"snippets-{language}-{hashlib.sha256(content).hexdigest()[:8]}"
    folder = platformdirs.user_cache_path("outbox-bridge") / label
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f"{label}.lock")):
        if not folder.is_dir():
            work = folder.with_name(f"{label}.part")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            fetch(work)
            work.rename(folder)
    return folder
