"""Destinations: what waits for each, and the switches that slow or stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from bridge import switches
from bridge.console.errands import SOURCE
from bridge.console.overview import EXACT_LIMIT, read_overview
from bridge.console.pages.here import Here
from bridge.console.security import identity_of, operators_only
from bridge.errors import InvalidSwitchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from bridge.switches import Change

_LONGEST_NAME = 200


def page(request: Request) -> Response:
    """Show all destinations that have rows or switches."""
    here = Here(request)
    with here.reads.reading() as conn:
        overview = read_overview(conn, here.schema)
    return here.render(
        "destinations.html", overview=overview, backlog=overview.backlog, limit=EXACT_LIMIT
    )


def change(request: Request) -> Response:
    """Show one destination's switches (or those of all) and the forms that set them."""
    here = Here(request)
    return _form(here, request.query_params.get("destination", switches.ALL))


def _form(
    here: Here,
    destination: str,
    *,
    status: int = 200,
    problem: str = "",
    given: Mapping[str, Any] | None = None,
) -> Response:
    destination = destination.replace("\0", "")[:_LONGEST_NAME] or switches.ALL
    with here.reads.reading() as conn:
        found = switches.list_switches(conn, here.schema)
    mine = {one.switch: one for one in found if one.destination == destination}
    return here.render(
        "change.html",
        status,
        destination=destination,
        is_all=destination == switches.ALL,
        switches=mine,
        stop_of_all=next((one for one in found if one.is_stop_of_all), None),
        problem=problem,
        given=given or {},
    )


@operators_only
async def set_switch(request: Request) -> Response:
    """Set or take off one switch, then show the destination again."""
    here = Here(request)
    form = {name: str(value) for name, value in (await request.form()).items()}
    destination = form.get("destination", "")
    named = None if destination == switches.ALL else destination
    common = {
        "reason": form.get("reason", ""),
        "actor": identity_of(request).name,
        "schema": here.schema,
        "source": SOURCE,
    }

    def work() -> Change:
        act = _action(form)
        with here.acts.acting() as conn:
            return act(conn, named, **common)

    try:
        done = await run_in_threadpool(work)
    except InvalidSwitchError as error:
        return await run_in_threadpool(
            _form, here, destination, status=422, problem=str(error), given=form
        )
    query = urlencode({"destination": done.destination, "done": "yes" if done.changed else "no"})
    return RedirectResponse(here.url(f"/destinations/change?{query}"), 303)


def _action(form: Mapping[str, str]) -> Callable[..., Change]:
    """Choose the action of a form. Raises InvalidSwitchError."""
    off = form.get("off") == "yes"
    match form.get("switch"):
        case "pause":
            return switches.pause
        case "resume":
            return switches.resume
        case "limit":
            rate = None if off else _number(form.get("rows_per_second", ""), "rows a second")
            return lambda conn, to, **common: switches.limit(
                conn, to, rows_per_second=rate, **common
            )
        case "batch":
            rows = None if off else _number(form.get("batch_rows", ""), "rows a claim")
            return lambda conn, to, **common: switches.batch(conn, to, rows=rows, **common)
        case "quiet":
            window = None if off else form.get("quiet_hours", "")
            return lambda conn, to, **common: switches.quiet(conn, to, window=window, **common)
    raise InvalidSwitchError("the form names no switch; reload the page and try again")


def _number(text: str, what: str) -> int:
    text = text.strip().replace(",", "")
    if not text.isascii() or not text.isdecimal():
        raise InvalidSwitchError(f"{what}: {text!r} is no number; write one such as 200")
    return int(text)
