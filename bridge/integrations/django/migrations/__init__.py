"""One Django migration for each pair of files in `schemas/postgres/migrations`."""

from __future__ import annotations
