"""Everything about one message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from psycopg.rows import class_row
from starlette.responses import RedirectResponse

from bridge.console.errands import ERRANDS
from bridge.console.masks import MaskedText
from bridge.console.pages.here import Here
from bridge.console.security import identity_of
from bridge.console.timeline import Place, timeline
from bridge.database.statements import load
from bridge.errors import OperationError
from bridge.inspection import MAX_ID, find_message
from bridge.lifecycle import Status
from bridge.operations import STARTS, Action, exposure, list_audit

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from bridge.console.access import Identity
    from bridge.inspection import StoredMessage

_PAYLOAD_LIMIT = 262_144
_DUMP_BYTES = 2048
_AUDIT_ROWS = 100
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


def page(request: Request) -> Response:
    """Show timeline, record, payload, headers and audit of one message."""
    here = Here(request)
    outbox_id: int = request.path_params["outbox_id"]
    if outbox_id > MAX_ID:
        return _missing(here, str(outbox_id))
    with here.reads.reading() as conn:
        try:
            message, entries = find_message(
                conn, str(outbox_id), here.schema, payload_limit=_PAYLOAD_LIMIT
            )
        except OperationError:
            return _missing(here, str(outbox_id))
        if message.outbox_id != outbox_id:  # another row has this number as its key
            return _missing(here, str(outbox_id))
        with conn.cursor(row_factory=class_row(Place)) as cursor:
            place = cursor.execute(
                load("read_standing", here.schema), {"outbox_id": outbox_id}
            ).fetchall()[0]
        records = list_audit(conn, here.schema, outbox_id=outbox_id, limit=_AUDIT_ROWS)
        now = conn.execute("select pg_catalog.clock_timestamp()").fetchall()[0][0]
    identity = identity_of(request)
    headers = message.header_pairs
    shown = _payload(here, message, identity)
    return here.render(
        "message.html",
        message=message,
        steps=timeline(message, entries, place, now),
        place=place,
        payload=shown,
        headers=here.masks.headers(headers),
        trace=_trace(here, headers),
        records=[_masked(here, record) for record in records],
        exposure=exposure(message.status, message.claim_count),
        errands=_errands(message, place) if identity.may_act else [],
        is_final=message.status in (Status.SENT, Status.CANCELLED),
    )


def find(request: Request) -> Response:
    """Go to the message of an id or a key; else to the list that looks for it."""
    here = Here(request)
    text = request.query_params.get("q", "").strip()
    if not text:
        return RedirectResponse(here.url("/messages"), 303)
    if not any(c in text for c in "*?") and len(text) <= 200:  # noqa: PLR2004 - longest key
        with here.reads.reading() as conn:
            try:
                message, _ = find_message(conn, text, here.schema, payload_limit=0)
            except OperationError:
                pass
            else:
                return RedirectResponse(here.url(f"/messages/{message.outbox_id}"), 303)
    return RedirectResponse(here.url(f"/messages?{urlencode({'key': text})}"), 303)


def _missing(here: Here, reference: str) -> Response:
    return here.render("missing.html", 404, reference=reference)


def _errands(message: StoredMessage, place: Place) -> list[Any]:
    status = Status(message.status)
    allowed = [one for one in ERRANDS.values() if status in STARTS[one.action]]
    return [
        one for one in allowed if one.action is not Action.SKIP or place.holds_since is not None
    ]


def _payload(here: Here, message: StoredMessage, identity: Identity) -> MaskedText:
    who = here.settings.payloads
    if who == "nobody" or (who == "operators" and not identity.may_act):
        return MaskedText(None, why_not=f"not shown: the settings show payloads to {who}")
    if message.payload_bytes is not None:
        return _bytes(here, message)
    return here.masks.payload(message.payload_text, is_whole=not message.is_cut)


def _bytes(here: Here, message: StoredMessage) -> MaskedText:
    data = message.payload_bytes or b""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and all(c.isprintable() or c.isspace() for c in text):
        return here.masks.payload(text, is_whole=not message.is_cut)
    if here.masks.are_set:
        return MaskedText(None, why_not="not shown: fields are masked, and this is binary")
    lines = [
        f"{at:08x}  {data[at : at + 16].hex(' '):<47}  {_printable(data[at : at + 16])}"
        for at in range(0, min(len(data), _DUMP_BYTES), 16)
    ]
    return MaskedText("\n".join(lines))


def _printable(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)  # noqa: PLR2004 - ASCII


def _trace(here: Here, headers: dict[str, Any]) -> tuple[str, str | None] | None:
    """Return the trace's id and its link, None where the row carries no trace."""
    match = _TRACE_PARENT.fullmatch(str(headers.get("traceparent", "")))
    if match is None:
        return None
    template = here.settings.trace_link
    return match[1], template.replace("{trace_id}", match[1]) if template else None


def _masked(here: Here, record: Any) -> dict[str, Any]:
    return {
        "record": record,
        "before": here.masks.document(record.before_state),
        "after": here.masks.document(record.after_state),
    }
