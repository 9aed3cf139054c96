"""`outbox-bridge console`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output


def console(
    *,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on (127.0.0.1)."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="Port to listen on (8470); 0: a free one."),
    ] = None,
    add_user: Annotated[
        str | None,
        typer.Option(
            "--add-user",
            metavar="NAME",
            help="Ask for a password, print an entry for console.users, and end.",
        ),
    ] = None,
    viewer: Annotated[
        bool, typer.Option("--viewer", help="With --add-user: a viewer, not an operator.")
    ] = False,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve pages to see, decide, act and prove in a browser.

    On 127.0.0.1 it needs no login: whoever works on this machine may act. Elsewhere it refuses to
    start without authentication: `[console] auth` is "basic" or "proxy". Every action is in the
    audit under its login. Prints its URL (with --json in a document) and runs until SIGTERM or
    Ctrl-C; a second signal forces the end.

    Examples:
      outbox-bridge console
      outbox-bridge console --port 0
      outbox-bridge console --add-user ana
    """
    output = Output(as_json=as_json)
    if add_user is not None:
        output.line(_entry(add_user, "viewer" if viewer else "operator"))
        return
    if viewer:
        raise typer.BadParameter("--viewer goes with --add-user", param_hint="--viewer")
    settings = settings_from(
        config,
        database_url=database_url,
        schema=schema,
        overrides={"console": {"host": host, "port": port}},
    )
    # Load the web stack; `--help` must not wait for it.
    from bridge.cli.config import effective, readable  # noqa: PLC0415 - see above
    from bridge.console.server import serve  # noqa: PLC0415 - see above
    from bridge.settings import is_color_wanted  # noqa: PLC0415 - see above
    from bridge.telemetry.logging import configure_logging  # noqa: PLC0415 - see above

    configure_logging(settings.log.level, settings.log.format, colors=is_color_wanted())
    shown = [
        (one.name, "" if (value := readable(one.value)) is None else str(value), one.source)
        for one in effective(settings)
    ]

    def announce(url: str) -> None:
        if as_json:
            output.json({"url": url, "auth": settings.console.auth})
        else:
            output.line(f"outbox-bridge console on {url}")
        sys.stdout.flush()
        if settings.console.auth == "none":
            output.note(f"no login: everybody on this machine is {settings.console.role}")

    serve(settings, announce=announce, shown_settings=shown)


def _entry(name: str, role: str) -> str:
    from bridge.console.passwords import hash_password  # noqa: PLC0415 - as above

    if not name or ":" in name or '"' in name or not name.isprintable():
        raise typer.BadParameter(
            "a name has printable characters and no colon or quote", param_hint="--add-user"
        )
    password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return f"{name}:{role}:{hash_password(password)}"
