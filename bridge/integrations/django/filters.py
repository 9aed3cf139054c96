"""What the admin can be narrowed to without a walk over all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin import SimpleListFilter
from django.db import connections
from django.db.models.expressions import RawSQL

from bridge.integrations.django.models import outbox_table

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from bridge.integrations.django.models import OutboxMessage

_SIDE_TABLES = {"unsent": "app_outbox_queue", "failed": "app_outbox_failed"}


class StateFilter(SimpleListFilter):
    """Unsent and failed rows, found by their side tables: `status` is in no index."""

    title = "state"
    parameter_name = "state"

    def lookups(
        self,
        request: HttpRequest,  # noqa: ARG002 - the signature is Django's
        model_admin: ModelAdmin[Any],  # noqa: ARG002 - see above
    ) -> list[tuple[str, str]]:
        """Name the choices."""
        return [("unsent", "Unsent"), ("failed", "Failed")]

    def queryset(
        self,
        request: HttpRequest,  # noqa: ARG002 - the signature is Django's
        queryset: QuerySet[OutboxMessage],
    ) -> QuerySet[OutboxMessage]:
        """Narrow the rows."""
        table = _SIDE_TABLES.get(self.value() or "")
        if table is None:
            return queryset
        quoted = connections[queryset.db].ops.quote_name(outbox_table(table))
        # A table's name, no value: nothing of the request is in it.
        ids = RawSQL(f"select outbox_id from {quoted}", ())  # noqa: S608, S611
        return queryset.filter(outbox_id__in=ids)
