"""From a selection to an outcome: what would be changed, the reason, and what was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from bridge.console.access import Refusal
from bridge.console.errands import ERRANDS, Options, run_errand
from bridge.console.jobs import JobState
from bridge.console.pages.here import Here, filter_of, number_of
from bridge.console.security import identity_of, operators_only
from bridge.errors import InvalidOperationError
from bridge.operations import Preview, Selection, preview
from bridge.reason import checked_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from bridge.console.errands import Errand
    from bridge.operations import Outcome

_MOST_IDS = 1000
_PATIENCE_SECONDS = 1.5
"""Most actions are over by then: the first page that is seen tells the outcome."""
_SHOWN_REFUSALS = 50


@operators_only
async def preview_page(request: Request) -> Response:
    """Show what an action would change, and ask for the reason."""
    return await run_in_threadpool(_preview, request, request.query_params)


def _preview(request: Request, given: Any, *, status: int = 200, problem: str = "") -> Response:
    here = Here(request)
    errand = _errand_of(given)
    selection, words = _selection_of(given)
    found: Preview | None = None
    try:
        with here.reads.reading() as conn:
            found = preview(conn, errand.action, selection, schema=here.schema)
    except InvalidOperationError as error:
        status, problem = 422, str(error)
    return here.render(
        "act.html",
        status,
        errand=errand,
        preview=found,
        words=words,
        fields=_fields(selection, given),
        back=_list_of(selection, given),
        problem=problem,
        given=given,
        shown_refusals=_SHOWN_REFUSALS,
    )


@operators_only
async def run(request: Request) -> Response:
    """Do it, and show the outcome, or how far it is where it takes a while."""
    here = Here(request)
    form = await request.form()
    errand = _errand_of(form)
    selection, words = _selection_of(form)
    login = identity_of(request).name
    try:
        selection.check(errand.action)
        reason = checked_reason(str(form.get("reason") or ""))
        options = Options.parse({name: str(value) for name, value in form.items()})
    except InvalidOperationError as error:
        return await run_in_threadpool(_preview, request, form, status=422, problem=str(error))

    def work(key: str, on_batch: Callable[[Outcome], None]) -> Outcome:
        with here.acts.acting() as conn:
            return run_errand(
                errand,
                conn,
                selection,
                options,
                reason=reason,
                login=login,
                key=key,
                schema=here.schema,
                on_batch=on_batch,
            )

    job = here.jobs.start(work, title=f"{errand.verb} {words}", reason=reason, login=login)
    await run_in_threadpool(job.ended.wait, _PATIENCE_SECONDS)
    return RedirectResponse(here.url(f"/jobs/{job.key}"), 303)


def job_page(request: Request) -> Response:
    """Show an action under way, or its outcome."""
    here = Here(request)
    job = here.jobs.get(request.path_params["key"])
    if job is None:
        raise Refusal(
            404,
            "This action is not remembered any more; the audit knows what it changed.",
        )
    outcome = job.outcome
    done = ERRANDS[outcome.action.command].done if outcome is not None else ""
    return here.render(
        "job.html",
        job=job,
        outcome=outcome,
        done=done,
        is_running=job.state is JobState.RUNNING,
        shown_refusals=_SHOWN_REFUSALS,
    )


@operators_only
async def stop(request: Request) -> Response:
    """Let an action end after its batch."""
    here = Here(request)
    key = request.path_params["key"]
    here.jobs.stop(key)
    job = here.jobs.get(key)
    if job is not None:
        await run_in_threadpool(job.ended.wait, _PATIENCE_SECONDS)
    return RedirectResponse(here.url(f"/jobs/{key}"), 303)


def _errand_of(given: Any) -> Errand:
    errand = ERRANDS.get(str(given.get("action") or ""))
    if errand is None:
        raise Refusal(400, "The form names no action; go back, reload the page and try again.")
    return errand


def _selection_of(given: Any) -> tuple[Selection, str]:
    """Return the rows that are meant, and say it in words. Raises Refusal."""
    named = [str(one) for one in given.getlist("id")]
    known = tuple(dict.fromkeys(one for one in map(number_of, named) if one))
    if wrong := [one for one in named if not number_of(one)]:
        raise Refusal(400, f"{wrong[0]!r} is no outbox_id.")
    if len(known) > _MOST_IDS:
        raise Refusal(400, f"More than {_MOST_IDS} rows are named one by one; use a filter.")
    if known:
        words = f"row {known[0]}" if len(known) == 1 else f"{len(known)} rows"
        return Selection(ids=known), words
    wanted = filter_of(given)
    if wanted.problems:
        # A field that cannot be read must never widen what an action changes.
        raise Refusal(400, "; ".join(wanted.problems))
    parts = [
        f"{name} {' or '.join(value) if isinstance(value, list) else value}"
        for name, value in wanted.parameters().items()
    ]
    return wanted.selection(), "all rows with " + ", ".join(parts) if parts else "rows"


def _fields(selection: Selection, given: Any) -> list[tuple[str, str]]:
    """Return the form's hidden fields: the same selection again."""
    if selection.is_by_id:
        return [("id", str(one)) for one in selection.ids]
    return [
        (name, value)
        for name, values in filter_of(given).parameters().items()
        for value in (values if isinstance(values, list) else [values])
    ]


def _list_of(selection: Selection, given: Any) -> str:
    """Return the page to go back to."""
    if len(selection.ids) == 1:
        return f"/messages/{selection.ids[0]}"
    if selection.is_by_id:
        return "/messages"
    return "/messages?" + urlencode(filter_of(given).parameters(), doseq=True)
