"""A signed cookie for each browser, and the token that its forms must bring back."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

from itsdangerous import BadSignature, Signer

_ID_BYTES = 18
THEMES = ("auto", "light", "dark")


class Sessions:
    """Makes and checks session cookies and the tokens of forms.

    The token belongs to session and login together: neither a cookie planted from elsewhere nor a
    page left over from another login gives a valid one.
    """

    def __init__(self, secret: str | None, *, port: int, secure: bool, path: str) -> None:
        self._key = (secret or secrets.token_hex(32)).encode()
        self._signer = Signer(self._key, salt="outbox-bridge.console.session")
        # Cookies know no ports: two consoles on one machine must not take each other's.
        self.name = f"outbox_bridge_{port}"
        self.theme_name = f"outbox_bridge_theme_{port}"
        self._attributes = f"Path={path or '/'}; HttpOnly; SameSite=Lax" + (
            "; Secure" if secure else ""
        )

    def read(self, cookie_header: str) -> tuple[str | None, str]:
        """Return the session's id, None where there is no valid one, and the wanted theme."""
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(cookie_header)
        except CookieError:
            return None, THEMES[0]
        theme = cookies[self.theme_name].value if self.theme_name in cookies else ""
        session: str | None = None
        if self.name in cookies:
            try:
                session = self._signer.unsign(cookies[self.name].value).decode("ascii", "replace")
            except BadSignature:
                session = None
        return session, theme if theme in THEMES else THEMES[0]

    def begin(self) -> tuple[str, str]:
        """Return a new session's id and the Set-Cookie header that carries it."""
        session = secrets.token_urlsafe(_ID_BYTES)
        signed = self._signer.sign(session).decode()
        return session, f"{self.name}={signed}; {self._attributes}"

    def theme_cookie(self, theme: str) -> str:
        """Return the Set-Cookie header that keeps a theme for a year."""
        return f"{self.theme_name}={theme}; Max-Age=31536000; {self._attributes}"

    def token(self, session: str, login: str) -> str:
        """Return the token that this session's forms carry."""
        text = f"{session}\n{login}".encode()
        return hmac.new(self._key, b"form\n" + text, hashlib.sha256).hexdigest()

    def is_valid(self, token: str, session: str, login: str) -> bool:
        """Tell whether a form brought its token back."""
        return hmac.compare_digest(token.encode(), self.token(session, login).encode())
