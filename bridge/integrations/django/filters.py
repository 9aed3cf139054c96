"""What the admin can be narrowed to without a walk over all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin import SimpleListFilter
from django.db import connections
from django.db.models.expressions import RawSQL

from bridge.integrations.django.models import outbox_table
from bridge.lifecycle import Status

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from bridge.integrations.django.models import OutboxMessage

_UNSENT, _FAILED = "unsent", "failed"


class StateFilter(SimpleListFilter):
    """Unsent and failed rows, found by the side tables: `status` is in no index.

    Those are hints, so the status itself has the last word.
    """

    title = "state"
    parameter_name = "state"

    def lookups(
        self,
        request: HttpRequest,  # noqa: ARG002 - the signature is Django's
        model_admin: ModelAdmin[Any],  # noqa: ARG002 - see above
    ) -> list[tuple[str, str]]:
        """Name the choices."""
        return [(_UNSENT, "Unsent"), (_FAILED, "Failed")]

    def queryset(
        self,
        request: HttpRequest,  # noqa: ARG002 - the signature is Django's
        queryset: QuerySet[OutboxMessage],
    ) -> QuerySet[OutboxMessage]:
        """Narrow the rows."""
        quote = connections[queryset.db].ops.quote_name
        if self.value() == _UNSENT:
            queue, claim = (
                quote(outbox_table(f"app_outbox_{name}")) for name in ("queue", "claim")
            )
            ids = (
                f"select outbox_id from {queue} "  # noqa: S608 - names of tables, no values
                f"union all select unnest(outbox_ids) from {claim}"
            )
            statuses = [Status.PENDING, Status.PROCESSING]
        elif self.value() == _FAILED:
            ids = f"select outbox_id from {quote(outbox_table('app_outbox_failed'))}"  # noqa: S608
            statuses = [Status.FAILED]
        else:
            return queryset
        # Nothing of the request is in the text.
        return queryset.filter(outbox_id__in=RawSQL(ids, ()), status__in=statuses)  # noqa: S611
