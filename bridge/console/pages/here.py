"""What every page reaches for: the console's parts behind a request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bridge.console.filters import MessageFilter

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import HTMLResponse

    from bridge.console.connections import ActionConnections, ReadConnections
    from bridge.console.examination import Examination
    from bridge.console.jobs import Jobs
    from bridge.console.masks import Masks
    from bridge.console.pulse import Pulse
    from bridge.settings import ConsoleSettings


class Here:
    """The parts of the console that serves a request."""

    def __init__(self, request: Request) -> None:
        state = request.app.state
        self._request = request
        self.reads: ReadConnections = state.reads
        self.acts: ActionConnections = state.acts
        self.jobs: Jobs = state.jobs
        self.masks: Masks = state.masks
        self.pulse: Pulse = state.pulse
        self.examination: Examination = state.examination
        self.settings: ConsoleSettings = state.settings.console
        self.schema: str = state.reads.schema

    def render(self, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template for this request."""
        page: HTMLResponse = self._request.app.state.templates.render(
            self._request, name, status, **values
        )
        return page

    def url(self, path: str) -> str:
        """Return the address of a path of ours, behind a proxy's prefix too."""
        return str(self._request.scope.get("root_path", "")) + path


def filter_of(parameters: Any) -> MessageFilter:
    """Read the message filter of a URL's or a form's parameters."""
    given = {name: value for name, value in parameters.items() if isinstance(value, str)}
    statuses = [one for one in parameters.getlist("status") if isinstance(one, str)]
    return MessageFilter.parse(given, statuses, datetime.now(UTC))


def number_of(text: str | None, default: int | None = None) -> int | None:
    """Read a number of a URL; the default for what is none."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 19:  # noqa: PLR2004 - digits of a bigint
        return default
    return min(int(text), 2**63 - 1)
