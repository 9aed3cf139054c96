"""Applies 0001_outbox.up.sql, and tells Django of the model that it does not manage."""

from __future__ import annotations

from django.db import migrations, models

from bridge.integrations.django.models import outbox_table
from bridge.integrations.django.operations import MigrateOutbox


class Migration(migrations.Migration):
    """See the SQL file."""

    initial = True
    operations = (
        MigrateOutbox(1),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("outbox_id", models.BigIntegerField(primary_key=True, serialize=False)),
            ],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "db_table": outbox_table("app_outbox"),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
    )
