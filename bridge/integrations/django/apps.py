"""The Django app's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """App label `outbox_bridge`."""

    name = "bridge.integrations.django"
    label = "outbox_bridge"
    verbose_name = "Outbox"
    default_auto_field = "django.db.models.BigAutoField"
