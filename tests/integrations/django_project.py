"""A Django project in the tests' own process; each test names its database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import django
from django.conf import settings

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

if not settings.configured:
    settings.configure(
        SECRET_KEY="of tests",  # noqa: S106 - signs nothing that matters
        USE_TZ=True,
        ALLOWED_HOSTS=["testserver"],
        ROOT_URLCONF="tests.integrations.django_urls",
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "bridge.integrations.django",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        # Quick, for the one user who logs in.
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.postgresql", "NAME": "named-by-the-test"},
            "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
    )
    django.setup()


def connect(url: str) -> BaseDatabaseWrapper:
    """Point the default database at `url`, whatever it was before."""
    from django.db import connections  # noqa: PLC0415 - after the set-up

    connection: BaseDatabaseWrapper = connections["default"]
    connection.close()
    parts = urlsplit(url)
    named: dict[str, Any] = {
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "PASSWORD": parts.password,
        "HOST": parts.hostname,
        "PORT": str(parts.port),
    }
    connection.settings_dict.update(named)
    return connection
