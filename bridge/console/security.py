"""What every request passes: host, login, session, and the headers of every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response

from bridge.console.access import Identity, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bridge.console.access import Door
    from bridge.console.hosts import Hosts
    from bridge.console.sessions import Sessions

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_OPEN_PATHS = ("/livez", "/static/")
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: browsers would then send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """ASGI middleware around the whole console.

    Answers itself what is not let in. For the rest the scope's state carries `identity`, `session`
    (its id), `token` (for forms) and `theme`. Not a BaseHTTPMiddleware: event streams pass through.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        door: Door,
        hosts: Hosts,
        sessions: Sessions,
        prefix: str,
        https: bool,
    ) -> None:
        self._app = app
        self._door = door
        self._hosts = hosts
        self._sessions = sessions
        self._prefix = prefix
        self._headers = dict(_HEADERS)
        if https:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, pass it on, and add to the answer's headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._prefix:
            # A proxy may pass the path on with or without the prefix.
            scope["root_path"] = self._prefix
        new_cookie: str | None = None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if new_cookie is not None:
                    headers.append("Set-Cookie", new_cookie)
            await send(message)

        try:
            new_cookie = await self._admit(scope)
        except Refusal as refusal:
            answer = PlainTextResponse(
                f"{refusal}\n", status_code=refusal.status, headers=refusal.headers
            )
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    async def _admit(self, scope: Scope) -> str | None:
        """Check the request and note who asks; returns a cookie to set. Raises Refusal."""
        headers = Headers(scope=scope)
        host = headers.getlist("host")
        if len(host) != 1 or not self._hosts.is_ours(host[0]):
            raise Refusal(
                400,
                "This host name is not the console's. Name it in console.allowed_hosts or "
                "console.public_url.",
            )
        if scope["method"] not in _SAFE_METHODS:
            self._check_origin(headers, host[0])
        state: dict[str, Any] = scope.setdefault("state", {})
        path = scope["path"].removeprefix(self._prefix)
        if path.startswith(_OPEN_PATHS):
            return None
        peer = scope["client"][0] if scope.get("client") else None
        told = headers.getlist(self._door.header)
        identity = await run_in_threadpool(self._door.identify, peer, told)
        session, theme = self._sessions.read("; ".join(headers.getlist("cookie")))
        cookie: str | None = None
        if session is None:
            session, cookie = self._sessions.begin()
        state["identity"] = identity
        state["session"] = session
        state["token"] = self._sessions.token(session, identity.name)
        state["theme"] = theme
        return cookie

    def _check_origin(self, headers: Headers, host: str) -> None:
        """Refuse what another site's page sent: browsers say so, other clients say nothing."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refusal(403, "The request comes from another site.")
        origin = headers.get("origin")
        if origin is not None and not self._hosts.is_same_origin(origin, host):
            raise Refusal(403, "The request comes from another site.")


def identity_of(request: Request) -> Identity:
    """Return who asks."""
    identity: Identity = request.state.identity
    return identity


def operators_only(
    handler: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Let only operators, with a form that brings its token back, reach a handler."""

    async def guarded(request: Request) -> Response:
        if not identity_of(request).may_act:
            raise Refusal(403, "Your role is viewer: you may look at everything, not change it.")
        if request.method not in _SAFE_METHODS:
            await check_form(request)
        return await handler(request)

    return guarded


async def check_form(request: Request) -> None:
    """Raise Refusal where a form does not bring its token back."""
    form = await request.form(max_files=0)
    sessions: Sessions = request.app.state.sessions
    token = form.get("token")
    if not isinstance(token, str) or not sessions.is_valid(
        token, request.state.session, identity_of(request).name
    ):
        raise Refusal(
            403,
            "The form is from another session or login. Go back, reload the page and try again.",
        )
