"""The contracts as consumers read them: AsyncAPI document and JSON Schemas."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

if TYPE_CHECKING:
    from tests.fixtures.kafka import ReceivedRecord

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
EVENTS = SCHEMAS / "events"


@cache
def asyncapi() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text())
    return document


def event_schemas() -> list[Path]:
    return sorted(EVENTS.rglob("*.schema.json"))


@cache
def _registry() -> Registry[Any]:
    return Registry().with_resources(
        (path.as_uri(), Resource.from_contents(json.loads(path.read_text()), DRAFT202012))
        for path in event_schemas()
    )


def validator(path: Path) -> Draft202012Validator:
    """A validator of one file; what it refers to is found beside it."""
    return Draft202012Validator(
        {"$ref": path.as_uri()}, registry=_registry(), format_checker=FormatChecker()
    )


def resolve(reference: dict[str, Any]) -> dict[str, Any]:
    """Follow a `#/…` reference within the AsyncAPI document."""
    found: Any = asyncapi()
    for part in reference["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    assert isinstance(found, dict)
    return found


def messages_of(channel: str) -> list[dict[str, Any]]:
    """A channel's messages with their traits merged in, as AsyncAPI prescribes."""
    messages = []
    for reference in asyncapi()["channels"][channel]["messages"].values():
        message = resolve(reference)
        traits = [resolve(trait) for trait in message.get("traits", [])]
        messages.append({name: value for one in [*traits, message] for name, value in one.items()})
    return messages


def schema_of(part: dict[str, Any]) -> Draft202012Validator:
    """The validator of a message's headers or payload."""
    assert part["schemaFormat"] == "application/schema+json;version=2020-12"
    return validator((SCHEMAS / part["schema"]["$ref"]).resolve())


def problems(record: ReceivedRecord, channel: str) -> list[str]:
    """What is wrong with a record of this channel; empty where it honours the contract."""
    event_type = record.headers.get("event-type")
    messages = messages_of(channel)
    fitting = [one for one in messages if one["name"] == event_type] or (
        messages if asyncapi()["channels"][channel]["address"] == "{topic}" else []
    )
    if not fitting:
        return [f"{channel} has no message {event_type!r}"]
    (message,) = fitting
    found = [error.message for error in schema_of(message["headers"]).iter_errors(record.headers)]
    binding = message.get("bindings", {}).get("kafka", {}).get("key")
    if binding is not None:
        key = None if record.key is None else record.key.decode()
        found += [error.message for error in Draft202012Validator(binding).iter_errors(key)]
    if "payload" in message:
        assert record.headers["content-type"] == message["contentType"]
        value = json.loads(record.value or b"null")
        found += [error.message for error in schema_of(message["payload"]).iter_errors(value)]
    return found
