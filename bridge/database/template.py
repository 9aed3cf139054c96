"""Fills psql variables into the SQL files, so that the same files run in psql as they are.

`:"schema"` becomes the quoted schema, `:'wake_channel'`, `:'wake_class'` and `:'relay_lock_class'`
the constants of that schema, and in queries every other `:'name'` a psycopg parameter `%(name)s`.
"""

from __future__ import annotations

import re
import zlib

from psycopg import sql

_VARIABLE = re.compile(r"""(?<!:):(?P<quote>["'])(?P<name>[a-z_]+)(?P=quote)""")
_MAX_IDENTIFIER = 63


def wake_channel(schema: str) -> str:
    """Return the NOTIFY channel of a schema; at most 63 bytes, PostgreSQL's limit."""
    channel = f"app_outbox_{schema}"
    if len(channel.encode()) <= _MAX_IDENTIFIER:
        return channel
    return f"app_outbox_{zlib.crc32(schema.encode()):08x}"


def advisory_class(purpose: str, schema: str) -> int:
    """Return the first half of a two-part advisory lock key (a signed 32-bit integer).

    Purpose and schema are hashed into it, so that several outboxes in one database do not meet.
    """
    value = zlib.crc32(f"outbox-bridge:{purpose}:{schema}".encode())
    return value - (1 << 32) if value >= 1 << 31 else value


def _constants(schema: str) -> dict[str, str]:
    return {
        "wake_channel": _literal(wake_channel(schema)),
        "wake_class": str(advisory_class("wake", schema)),
        "relay_lock_class": str(advisory_class("relay", schema)),
    }


def _identifier(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def render_script(text: str, schema: str) -> str:
    """Fill a migration script; an unknown variable raises `KeyError` with its name."""
    constants = _constants(schema)
    identifier = _identifier(schema)

    def fill(match: re.Match[str]) -> str:
        if match["quote"] == '"':
            if match["name"] != "schema":
                raise KeyError(match["name"])
            return identifier
        return constants[match["name"]]

    return _VARIABLE.sub(fill, text)


def render_query(text: str, schema: str) -> bytes:
    """Fill one statement for psycopg: `%` is escaped, `:'name'` becomes `%(name)s`.

    Comments are cut: they would travel to the server with each execution.
    """
    constants = _constants(schema)
    identifier = _identifier(schema).replace("%", "%%")

    def fill(match: re.Match[str]) -> str:
        if match["quote"] == '"':
            if match["name"] != "schema":
                raise KeyError(match["name"])
            return identifier
        constant = constants.get(match["name"])
        return f"%({match['name']})s" if constant is None else constant.replace("%", "%%")

    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return _VARIABLE.sub(fill, "\n".join(lines).replace("%", "%%")).strip().rstrip(";").encode()
