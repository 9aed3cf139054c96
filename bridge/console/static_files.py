"""Style, script and icon: kept by browsers as long as the address carries the same digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope


class CachedFiles(StaticFiles):
    """Static files that never change under one address."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with the file, to be kept for a year where the address has a digest."""
        response = await super().get_response(path, scope)
        kept = b"v=" in scope["query_string"]
        response.headers["Cache-Control"] = (
            "public, max-age=31536000, immutable" if kept else "no-cache"
        )
        return response
