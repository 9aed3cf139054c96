"""The doctor's findings, and what is in force: versions and settings, without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from bridge.console.pages.here import Here
from bridge.console.security import check_form
from bridge.doctor import Verdict
from bridge.errors import DatabaseError, SchemaError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def page(request: Request) -> Response:
    """Show the latest examination, and begin one where there is none yet."""
    here = Here(request)
    if here.examination.report is None:
        here.examination.start()
    database: str
    try:
        with here.reads.reading() as conn:
            database = str(conn.execute("select pg_catalog.version()").fetchall()[0][0])
    except (DatabaseError, SchemaError) as error:
        database = str(error)
    report = here.examination.report
    order = [Verdict.PROBLEM, Verdict.UNKNOWN, Verdict.OK]
    findings = sorted(report.findings, key=lambda one: order.index(one.verdict)) if report else []
    return here.render(
        "system.html",
        report=report,
        findings=findings,
        is_running=here.examination.is_running,
        database=database,
        settings=request.app.state.shown_settings,
    )


async def examine(request: Request) -> Response:
    """Begin an examination and show the page, which tells when it is done."""
    await check_form(request)
    here = Here(request)
    here.examination.start()
    return RedirectResponse(here.url("/system"), 303)
