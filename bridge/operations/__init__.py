"""Audited operator actions: one implementation under command line, console and SQL."""

from __future__ import annotations

from bridge.lifecycle import exposure
from bridge.operations.actions import cancel, edit, release, replay, retry, send_now, skip
from bridge.operations.audit import AuditRecord, list_audit
from bridge.operations.audit_chain import ChainReport, Flaw, Head, verify_audit
from bridge.operations.content import edit_options
from bridge.operations.previews import preview
from bridge.operations.shapes import (
    STARTS,
    Action,
    Actor,
    ChangedRow,
    Edit,
    Outcome,
    Preview,
    Refusal,
    Selection,
    TargetRow,
    Unset,
)

__all__ = [
    "STARTS",
    "Action",
    "Actor",
    "AuditRecord",
    "ChainReport",
    "ChangedRow",
    "Edit",
    "Flaw",
    "Head",
    "Outcome",
    "Preview",
    "Refusal",
    "Selection",
    "TargetRow",
    "Unset",
    "cancel",
    "edit",
    "edit_options",
    "exposure",
    "list_audit",
    "preview",
    "release",
    "replay",
    "retry",
    "send_now",
    "skip",
    "verify_audit",
]
