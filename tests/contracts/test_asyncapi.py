"""`schemas/asyncapi.yaml` and the schemas it refers to are valid, and so are their examples."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from bridge.demo.shop.events import OrderPlaced, PaymentCaptured
from bridge.message import (
    DEAD_LETTER_HEADERS,
    HEADER_IDEMPOTENCY_KEY,
    MAX_CONTENT_TYPE,
    MAX_DESTINATION,
    MAX_ERROR_CODE,
    MAX_ERROR_MESSAGE,
    MAX_EVENT_TYPE,
    MAX_MESSAGE_KEY,
    RESERVED_HEADERS,
)
from tests.contracts.documents import (
    EVENTS,
    SCHEMAS,
    asyncapi,
    event_schemas,
    messages_of,
    schema_of,
    validator,
)

_VENDOR = Path(__file__).with_name("vendor")
_SHA_256 = "51d3274899ad2875f25c18fd1aef4d5512f0a97be785d519740bde55a4162f61"


@pytest.fixture(scope="module")
def official() -> Draft7Validator:
    content = (_VENDOR / "asyncapi-3.1.0.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == _SHA_256
    return Draft7Validator(json.loads(content))


def test_the_vendored_schema_is_unchanged_and_carries_its_licence(
    official: Draft7Validator,
) -> None:
    assert official.schema["title"] == "AsyncAPI 3.1.0 schema."  # type: ignore[index]  # a mapping
    assert "Apache License" in (_VENDOR / "LICENSE").read_text()
    assert "AsyncAPI Initiative" in (_VENDOR / "NOTICE").read_text()


def test_asyncapis_own_schema_accepts_the_document(official: Draft7Validator) -> None:
    assert [error.message for error in official.iter_errors(asyncapi())] == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("asyncapi",), "3.0.0"),
        (("channels", "orders", "address"), 5),
        (("operations", "relayRecord", "action"), "publish"),
        (("components", "messageTraits", "record", "bindings", "kafka", "key"), 1),
    ],
)
def test_asyncapis_own_schema_refuses_what_is_wrong(
    official: Draft7Validator, path: tuple[str, ...], wrong: Any
) -> None:
    document = json.loads(json.dumps(asyncapi()))
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = wrong
    assert list(official.iter_errors(document))


def test_every_schema_is_valid_and_is_referred_to() -> None:
    text = (SCHEMAS / "asyncapi.yaml").read_text()
    assert len(event_schemas()) == 5
    for path in event_schemas():
        Draft202012Validator.check_schema(json.loads(path.read_text()))
        assert f"$ref: {path.relative_to(SCHEMAS).as_posix()}" in text


def test_operations_name_channels_that_exist() -> None:
    channels = asyncapi()["channels"]
    for operation in asyncapi()["operations"].values():
        assert operation["channel"]["$ref"].removeprefix("#/channels/") in channels


@pytest.mark.parametrize("channel", ["orders", "payments"])
def test_examples_honour_the_contract(channel: str) -> None:
    for message in messages_of(channel):
        for example in message["examples"]:
            assert list(schema_of(message["headers"]).iter_errors(example["headers"])) == []
            assert list(schema_of(message["payload"]).iter_errors(example["payload"])) == []
    for path in (EVENTS / "shop").iterdir():
        for example in json.loads(path.read_text())["examples"]:
            assert list(validator(path).iter_errors(example)) == []


def test_the_headers_schema_knows_the_relays_headers_and_their_lengths() -> None:
    schema = json.loads((EVENTS / "record-headers.schema.json").read_text())
    assert set(schema["required"]) == RESERVED_HEADERS
    lengths = {
        name: one["maxLength"] for name, one in schema["properties"].items() if "maxLength" in one
    }
    assert lengths == {
        "event-type": MAX_EVENT_TYPE,
        HEADER_IDEMPOTENCY_KEY: MAX_MESSAGE_KEY,
        "content-type": MAX_CONTENT_TYPE,
    }
    dead = json.loads((EVENTS / "dead-letter-headers.schema.json").read_text())
    assert set(dead["required"]) == set(dead["properties"]) == DEAD_LETTER_HEADERS
    assert dead["properties"]["dead-letter-code"]["maxLength"] == MAX_ERROR_CODE
    assert dead["properties"]["dead-letter-reason"]["maxLength"] == MAX_ERROR_MESSAGE
    assert dead["properties"]["dead-letter-destination"]["maxLength"] == MAX_DESTINATION


def test_the_shops_models_and_the_schemas_agree() -> None:
    for model, name in ((OrderPlaced, "order.placed"), (PaymentCaptured, "payment.captured")):
        path = EVENTS / "shop" / f"{name}.schema.json"
        schema = json.loads(path.read_text())
        assert schema["title"] == name
        assert list(model.model_fields) == schema["required"] == list(schema["properties"])
        for example in schema["examples"]:
            event = model.model_validate(example, strict=True)
            assert json.loads(event.model_dump_json()) == example


@pytest.mark.parametrize("missing", sorted(RESERVED_HEADERS))
def test_a_record_without_one_of_the_relays_headers_breaks_the_contract(missing: str) -> None:
    (message,) = messages_of("orders")
    headers = dict(message["examples"][0]["headers"])
    del headers[missing]
    assert [error.validator for error in schema_of(message["headers"]).iter_errors(headers)] == [
        "required"
    ]
