"""The outbox as a model, to be read; rows are written by `enqueue` and by the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from django.db import models

from bridge.errors import OperationError
from bridge.integrations.django import default_schema

if TYPE_CHECKING:
    from datetime import datetime


def outbox_table(name: str) -> str:
    """Return a table of the outbox as `db_table` takes it: with its schema, if not `public`."""
    schema = default_schema()
    # Django quotes what does not stand in quotes yet.
    return name if schema == "public" else f'"{schema}"."{name}"'


class OutboxMessage(models.Model):
    """One row of `app_outbox`; its table belongs to the migrations in SQL."""

    outbox_id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)
    message_key: models.CharField[str, str] = models.CharField(max_length=200)
    event_type: models.CharField[str, str] = models.CharField(max_length=100)
    destination: models.CharField[str, str] = models.CharField(max_length=200)
    ordering_key: models.CharField[str | None, str | None] = models.CharField(
        max_length=200, null=True
    )
    status: models.CharField[str, str] = models.CharField(max_length=20)
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()
    headers = models.JSONField()
    content_type: models.CharField[str | None, str | None] = models.CharField(
        max_length=100, null=True
    )
    payload_bytes: models.BinaryField[bytes | None, bytes | None] = models.BinaryField(null=True)
    retry_count: models.IntegerField[int, int] = models.IntegerField()
    max_retry_count: models.IntegerField[int, int] = models.IntegerField()
    next_run_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()
    claim_count: models.IntegerField[int, int] = models.IntegerField()
    locked_by: models.CharField[str | None, str | None] = models.CharField(
        max_length=128, null=True
    )
    sent_topic: models.TextField[str | None, str | None] = models.TextField(null=True)
    sent_partition: models.IntegerField[int, int] = models.IntegerField()
    sent_offset: models.BigIntegerField[int, int] = models.BigIntegerField()
    sent_at: models.DateTimeField[datetime | None, datetime | None] = models.DateTimeField(
        null=True
    )
    last_error_code: models.CharField[str | None, str | None] = models.CharField(
        max_length=100, null=True
    )
    last_error_msg: models.CharField[str | None, str | None] = models.CharField(
        max_length=1000, null=True
    )
    updated_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()

    class Meta:
        """Not managed by Django; nobody can add, change or delete."""

        managed = False
        db_table = outbox_table("app_outbox")
        default_permissions = ("view",)
        verbose_name = "message"
        verbose_name_plural = "messages"

    def __str__(self) -> str:
        return f"{self.event_type} {self.message_key}"

    def save(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse: a row is written by `enqueue` and belongs to the relay from then on."""
        raise OperationError(
            "an OutboxMessage cannot be saved; call bridge.integrations.django.enqueue"
        )

    def delete(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse: finished rows are pruned by the relay."""
        raise OperationError("an OutboxMessage cannot be deleted; the relay prunes finished rows")
