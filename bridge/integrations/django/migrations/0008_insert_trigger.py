"""Applies 0008_insert_trigger.up.sql."""

from __future__ import annotations

from django.db import migrations

from bridge.integrations.django.operations import MigrateOutbox


class Migration(migrations.Migration):
    """See the SQL file."""

    dependencies = (("outbox_bridge", "0007_monitoring"),)
    operations = (MigrateOutbox(8),)
