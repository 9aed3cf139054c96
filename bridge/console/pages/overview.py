"""The first page: is all well, and if not, what is to be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.console.attention import points
from bridge.console.charts import Share, bars, stacked
from bridge.console.overview import EXACT_LIMIT, TOTAL_LIMIT, read_overview
from bridge.console.pages.here import Here
from bridge.lifecycle import Status

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def page(request: Request) -> Response:
    """Show figures, what stands out, throughput and destinations."""
    here = Here(request)
    with here.reads.reading() as conn:
        overview = read_overview(conn, here.schema)
    minutes = overview.minutes
    chart = bars(
        [(one.minute, one.sent, one.failed) for one in minutes],
        title=f"Rows that became SENT in each of the last {len(minutes)} minutes; at most "
        f"{max(one.sent for one in minutes):,}. {sum(one.failed for one in minutes):,} became "
        "FAILED.",
    )
    shares = {
        name: stacked(
            [
                Share(status.value, one.counts[status])
                for status in (Status.PENDING, Status.PROCESSING, Status.FAILED)
            ],
            title=f"{name}: shares of waiting, in flight and failed",
        )
        for name, one in overview.backlog.destinations.items()
    }
    return here.render(
        "overview.html",
        overview=overview,
        backlog=overview.backlog,
        counts=overview.backlog.counts,
        points=points(overview),
        chart=chart,
        shares=shares,
        limit=EXACT_LIMIT,
        total_limit=TOTAL_LIMIT,
        sent_last_hour=sum(one.sent for one in minutes),
    )
