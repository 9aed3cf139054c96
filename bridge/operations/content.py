"""Checks the new content of an edited row by the rules of `enqueue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.draft import check_message
from bridge.errors import InvalidOperationError
from bridge.message import Message
from bridge.operations.shapes import Edit, Selection, Unset
from bridge.payload import DEFAULT_MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping


def edit_options(
    selection: Selection, change: Edit, max_payload_bytes: int | None
) -> dict[str, Any]:
    """Return the edit as `app_outbox_act` takes it: only what changes.

    Raises InvalidOperationError where nothing changes, a payload is to be changed by filter, or a
    name is set and dropped; InvalidMessageError where `enqueue` would refuse the content.
    """
    is_new_payload = change.payload is not Unset.UNSET
    if change.destination is None and not (change.headers or change.drop_headers or is_new_payload):
        raise InvalidOperationError(
            "nothing is to be changed: give destination, headers or payload"
        )
    if is_new_payload and not selection.is_by_id:
        raise InvalidOperationError("a payload is changed by id only; name the rows")
    if change.content_type is not None and not is_new_payload:
        raise InvalidOperationError("a content type goes with a new payload")
    _check_headers(change.headers or {}, change.drop_headers)
    draft = check_message(
        Message(
            message_key="unchanged",
            event_type="unchanged",
            destination="unchanged" if change.destination is None else change.destination,
            payload=change.payload if is_new_payload else None,
            content_type=change.content_type,
            headers=change.headers,
        ),
        {},
        DEFAULT_MAX_PAYLOAD_BYTES if max_payload_bytes is None else max_payload_bytes,
    )
    options: dict[str, Any] = {}
    if change.destination is not None:
        options["destination"] = change.destination
    if change.headers:
        options["headers"] = dict(change.headers)
    if change.drop_headers:
        options["drop_headers"] = list(change.drop_headers)
    if is_new_payload:
        # As text: a number beyond 64 bits or a repeated name must reach the column unchanged.
        options["payload_json"] = draft.payload_json
        options["payload_hex"] = None if draft.payload_bytes is None else draft.payload_bytes.hex()
        options["content_type"] = draft.content_type
        options["new_payload"] = True
    return options


def _check_headers(headers: Mapping[str, str], drop: tuple[str, ...]) -> None:
    both = sorted(set(headers) & set(drop))
    if both:
        raise InvalidOperationError(f"header {both[0]!r} is both set and taken away")
