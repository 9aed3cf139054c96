"""The audit: who did what, when and why, and whether the record is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool

from bridge.console.pages.here import Here, number_of
from bridge.console.security import check_form
from bridge.operations import ChainReport, list_audit, verify_audit

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_PAGE_ROWS = 50
_FIELDS = ("action", "by", "source", "request", "row")
_LONGEST = 200


def page(request: Request) -> Response:
    """Show entries, the latest first."""
    return _page(request, None)


async def verify(request: Request) -> Response:
    """Follow the hash chain and say whether it holds."""
    await check_form(request)
    return await run_in_threadpool(_verify, request)


def _verify(request: Request) -> Response:
    here = Here(request)
    # Reads the whole audit, so it has a connection without the pages' short time-out.
    with here.acts.acting() as conn:
        report = verify_audit(conn, here.schema)
    return _page(request, report)


def _page(request: Request, report: ChainReport | None) -> Response:
    here = Here(request)
    given = {
        name: text
        for name in _FIELDS
        if (text := request.query_params.get(name, "").replace("\0", "").strip()[:_LONGEST])
    }
    row = number_of(given.get("row"))
    with here.reads.reading() as conn:
        records = list_audit(
            conn,
            here.schema,
            outbox_id=row,
            action=given.get("action"),
            changed_by=given.get("by"),
            source=given.get("source"),
            request_id=given.get("request"),
            before=number_of(request.query_params.get("before")),
            limit=_PAGE_ROWS + 1,
        )
    older = None
    if len(records) > _PAGE_ROWS:
        records = records[:_PAGE_ROWS]
        older = urlencode({**given, "before": records[-1].audit_id})
    return here.render(
        "audit.html",
        records=[
            (
                record,
                here.masks.document(record.before_state),
                here.masks.document(record.after_state),
            )
            for record in records
        ],
        given=given,
        older=older,
        report=report,
    )
