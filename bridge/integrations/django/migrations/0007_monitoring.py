"""Applies 0007_monitoring.up.sql."""

from __future__ import annotations

from django.db import migrations

from bridge.integrations.django.operations import MigrateOutbox


class Migration(migrations.Migration):
    """See the SQL file."""

    dependencies = (("outbox_bridge", "0006_operations"),)
    operations = (MigrateOutbox(7),)
