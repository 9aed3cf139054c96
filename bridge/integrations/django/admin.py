"""The outbox in Django's admin, to be looked at and nothing else.

Every page is cheap on a table of any size: rows are found by their primary key, their message key
or a side table, never counted beyond a limit, and listed without their payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast, Left
from django.utils.functional import cached_property

from bridge.integrations.django.filters import StateFilter
from bridge.integrations.django.models import OutboxMessage

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    ReadOnly = admin.ModelAdmin[OutboxMessage]
    Pages = Paginator[OutboxMessage]
else:
    ReadOnly, Pages = admin.ModelAdmin, Paginator

_MAX_COUNT = 10_000
_MAX_SHOWN = 20_000
"""Characters of a payload."""


class BoundedPaginator(Pages):
    """Counts no further than so many rows."""

    @cached_property
    def count(self) -> int:
        """How many rows, at most the limit."""
        rows: Any = self.object_list
        found: int = rows.order_by()[:_MAX_COUNT].count()
        return found


@admin.register(OutboxMessage)
class OutboxMessageAdmin(ReadOnly):
    """Shows messages, newest first; search takes a message key or an outbox_id, in full."""

    list_display = (
        "outbox_id",
        "event_type",
        "message_key",
        "destination",
        "status",
        "retry_count",
        "last_error_code",
        "created_at",
        "sent_at",
    )
    list_filter = (StateFilter,)
    list_per_page = 50
    list_max_show_all = 500
    ordering = ("-outbox_id",)
    sortable_by = ()
    search_fields = ("message_key",)
    search_help_text = "A whole message key, or an outbox_id"
    show_full_result_count = False
    paginator = BoundedPaginator
    actions = None
    fields = (
        "outbox_id",
        "message_key",
        "event_type",
        "destination",
        "ordering_key",
        "status",
        "payload",
        "content_type",
        "headers",
        "created_at",
        "next_run_at",
        "retry_count",
        "max_retry_count",
        "claim_count",
        "locked_by",
        "last_error_code",
        "last_error_msg",
        "sent_topic",
        "sent_partition",
        "sent_offset",
        "sent_at",
        "updated_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxMessage]:
        """Leave the payloads in the database."""
        return super().get_queryset(request).defer("payload_bytes")

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002 - the signature is Django's
        queryset: QuerySet[OutboxMessage],
        search_term: str,
    ) -> tuple[QuerySet[OutboxMessage], bool]:
        """Find a row by what has an index; no part of a key, which would walk all rows."""
        term = search_term.strip()
        if not term:
            return queryset, False
        found = queryset.filter(message_key=term)
        if term.isdecimal() and len(term) < len(str(2**63)):
            found |= queryset.filter(outbox_id=int(term))
        return found, False

    @admin.display(description="payload")
    def payload(self, message: OutboxMessage) -> str:
        """Return the payload as it will be sent, cut where it is long."""
        rows = OutboxMessage.objects.using(message._state.db).filter(pk=message.pk)  # noqa: SLF001 - Django's documented attribute
        text = rows.values_list(
            Left(Cast(RawSQL("payload_json", ()), TextField()), _MAX_SHOWN + 1), flat=True
        ).first()
        if text is not None:
            return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        if message.payload_bytes is None:
            return "none (a tombstone)"
        return f"{len(message.payload_bytes)} bytes"

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - Django's signature
        """Nobody: rows are written by `enqueue`."""
        return False

    def has_change_permission(
        self,
        request: HttpRequest,  # noqa: ARG002 - the signature is Django's
        obj: OutboxMessage | None = None,  # noqa: ARG002 - see above
    ) -> bool:
        """Nobody: operators act by audited commands."""
        return False

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002 - the signature is Django's
        obj: OutboxMessage | None = None,  # noqa: ARG002 - see above
    ) -> bool:
        """Nobody: the relay prunes what is finished."""
        return False
