"""What a browser keeps for one person: the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse

from bridge.console.pages.here import Here
from bridge.console.security import check_form
from bridge.console.sessions import THEMES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def theme(request: Request) -> Response:
    """Keep a theme and go back to the page."""
    await check_form(request)
    form = await request.form()
    wanted = form.get("theme")
    back = str(form.get("back") or "/")
    parts = urlsplit(back)
    # Only within the console: a path, never `//elsewhere` or a scheme.
    if parts.scheme or parts.netloc or not back.startswith("/") or back.startswith(("//", "/\\")):
        back = "/"
    response = RedirectResponse(Here(request).url(back), 303)
    if wanted in THEMES:
        response.headers.append("Set-Cookie", request.app.state.sessions.theme_cookie(str(wanted)))
    return response
