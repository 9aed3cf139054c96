"""Templates: everything is escaped, nothing undefined passes, static files carry their digest."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from bridge.console import wording
from bridge.console.access import Identity, Role
from bridge.version import __version__

if TYPE_CHECKING:
    from starlette.requests import Request

HTMX = "htmx-2.0.11.min.js"
_NOBODY = Identity("nobody", Role.VIEWER)

NAVIGATION = (
    ("/", "Overview"),
    ("/messages", "Messages"),
    ("/failures", "Failures"),
    ("/keys", "Held keys"),
    ("/destinations", "Destinations"),
    ("/relays", "Relays"),
    ("/audit", "Audit"),
    ("/system", "System"),
)


class Templates:
    """Renders the package's templates for one console."""

    def __init__(self, *, prefix: str, schema: str) -> None:
        self._prefix = prefix
        environment = Environment(
            loader=PackageLoader("bridge.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters.update(
            age=wording.age,
            count=wording.count,
            capped=wording.capped,
            moment=wording.moment,
            plain=wording.plain,
            precise=wording.precise,
            size=wording.size,
        )
        environment.globals.update(
            ago=wording.ago,
            navigation=NAVIGATION,
            schema=schema,
            static=self._static,
            url=self._url,
            version=__version__,
            htmx=HTMX,
        )
        self._environment = environment

    def render(self, request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page for who asks."""
        state = request.state
        path = request.scope["path"].removeprefix(self._prefix) or "/"
        query = request.scope["query_string"].decode("ascii", "replace")
        here = path + (f"?{query}" if query else "") if request.method == "GET" else "/"
        html = self._environment.get_template(name).render(
            identity=getattr(state, "identity", _NOBODY),
            token=getattr(state, "token", ""),
            theme=getattr(state, "theme", "auto"),
            here=here,
            path=path,
            now=datetime.now(UTC),
            **values,
        )
        return HTMLResponse(html, status_code=status)

    def _url(self, path: str) -> str:
        return self._prefix + path

    def _static(self, name: str) -> str:
        return f"{self._prefix}/static/{name}?v={_digest(name)}"


@cache
def _digest(name: str) -> str:
    content = resources.files("bridge.console").joinpath("static", name).read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]
