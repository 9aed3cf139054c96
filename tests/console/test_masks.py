from __future__ import annotations

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.console.masks import HIDDEN, Masks

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def shown(rules: list[str], document: object) -> object:
    masked = Masks(rules).payload(orjson.dumps(document).decode(), is_whole=True)
    assert masked.text is not None
    return orjson.loads(masked.text)


def test_a_rule_is_a_path() -> None:
    order = {"card": {"number": "4111", "name": "A"}, "number": 7}
    assert shown(["card.number"], order) == {"card": {"number": HIDDEN, "name": "A"}, "number": 7}


def test_two_stars_reach_any_depth_and_lists_too() -> None:
    deep = {"password": "a", "users": [{"PassWord": "b"}, {"x": {"password": {"y": 1}}}]}
    assert shown(["**.password"], deep) == {
        "password": HIDDEN,
        "users": [{"PassWord": HIDDEN}, {"x": {"password": HIDDEN}}],
    }


def test_a_step_may_be_a_pattern() -> None:
    assert shown(["*.iban*"], {"from": {"iban": "DE1", "iban_check": 1}, "iban": 2}) == {
        "from": {"iban": HIDDEN, "iban_check": HIDDEN},
        "iban": 2,
    }


def test_headers_are_masked_by_name_whatever_its_case() -> None:
    headers = Masks(["header:auth*"]).headers({"Authorization": "Bearer x", "tenant": "7"})
    assert headers == {"Authorization": HIDDEN, "tenant": "7"}


def test_what_cannot_be_masked_is_not_shown() -> None:
    masks = Masks(["card"])
    assert masks.payload('{"card": "4111', is_whole=False).text is None
    assert masks.payload("card=4111", is_whole=True).text is None
    assert Masks([]).payload("card=4111", is_whole=True).text == "card=4111"


def test_numbers_are_shown_as_they_were_written() -> None:
    text = '{"big":123456789012345678901234567890,"exact":1.10,"list":[],"deep":[{}, 1]}'
    laid_out = Masks([]).payload(text, is_whole=True).text
    assert laid_out is not None
    assert "123456789012345678901234567890" in laid_out
    assert "1.10" in laid_out


@settings(max_examples=50)
@given(JSON)
def test_laying_a_payload_out_changes_nothing_in_it(document: object) -> None:
    assert shown([], document) == document


@settings(max_examples=50)
@given(
    st.dictionaries(st.text(), JSON, max_size=3), st.text(min_size=1).filter(lambda t: "." not in t)
)
def test_a_masked_field_never_comes_through(document: dict[str, object], secret: str) -> None:
    document["secret"] = {"inner": f"hidden-{secret}-value"}
    text = Masks(["secret"]).payload(orjson.dumps(document).decode(), is_whole=True).text
    assert text is not None
    assert orjson.loads(text)["secret"] == HIDDEN


def test_the_audit_is_masked_like_the_payload() -> None:
    state = {"status": "FAILED", "payload_json": {"card": {"number": "4111"}}}
    masked = Masks(["card.number"]).document(state)
    assert masked["payload_json"]["card"]["number"] == HIDDEN
