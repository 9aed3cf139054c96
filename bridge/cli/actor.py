"""Who acts from the command line."""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import suppress
from typing import Annotated

import typer

from bridge.errors import InvalidOperationError

ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; the audit keeps it.")
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", help="Who does it (else the system's user and host name)."
    ),
]


def actor_name(by: str | None) -> str:
    """Return the name that was given, else the system's user and host.

    Raises InvalidOperationError for a blank one.
    """
    if by is not None:
        if not by.strip():
            raise InvalidOperationError("--by is blank; give a name, or leave it out")
        return by.strip()
    user = str(os.getuid())
    with suppress(KeyError):  # a user that the system knows by number only
        user = pwd.getpwuid(os.getuid()).pw_name
    return f"{user}@{socket.gethostname()}"
