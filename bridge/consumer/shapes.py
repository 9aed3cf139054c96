"""Turns a decoded payload into what a handler's annotation asks for.

Known: everything JSON has, dataclasses (nested, in lists and dicts), pydantic models, Optional and
other unions, Literal, Enum, datetime, date, Decimal and UUID. Fields that a dataclass does not know
are left out: a producer may add some.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from bridge.errors import ConfigurationError

Convert = Callable[[Any, str], Any]
"""Takes a value and the path to it, for messages; raises ShapeError."""


class ShapeError(Exception):
    """The value is not of the wanted shape; the text says which part of it."""


def converter(annotation: Any) -> Convert:
    """Return the function that brings a payload into this shape.

    Raises ConfigurationError for an annotation that says nothing about JSON.
    """
    return _build(annotation, {})


def admits_none(annotation: Any) -> bool:
    """Whether a tombstone, which has no payload, fits the annotation."""
    if annotation in (Any, None, type(None), object):
        return True
    return _is_union(annotation) and any(admits_none(one) for one in get_args(annotation))


def _build(annotation: Any, known: dict[Any, Convert]) -> Convert:
    found = known.get(annotation) or _SCALARS.get(annotation)
    if found is not None:
        return found
    if hasattr(annotation, "model_validate"):
        return _pydantic(annotation)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _dataclass(annotation, known)
    if _is_union(annotation):
        return _union([_build(one, known) for one in get_args(annotation)], annotation)
    return _generic(annotation, known)


def _generic(annotation: Any, known: dict[Any, Convert]) -> Convert:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _wrap(annotation, annotation)
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Literal:
        return _literal(arguments)
    if origin is dict:
        return _dict(_build(arguments[1], known) if arguments else _as_it_is)
    if origin in (list, tuple, set, frozenset):
        return _items(origin, _build(arguments[0], known) if arguments else _as_it_is)
    raise ConfigurationError(
        f"a payload cannot be turned into {annotation!r}; annotate the handler's first parameter "
        "with dict, bytes, a dataclass, a pydantic model, or nothing"
    )


def _as_it_is(value: Any, path: str) -> Any:  # noqa: ARG001 - the shape of a converter
    return value


def _of(wanted: type, *others: type) -> Convert:
    def convert(value: Any, path: str) -> Any:
        # True is an int to Python, but not to JSON.
        if not isinstance(value, (wanted, *others)) or (
            isinstance(value, bool) and wanted is not bool
        ):
            raise _unfit(value, path, wanted.__name__)
        return wanted(value) if others else value

    return convert


def _wrap(make: Callable[[Any], Any], wanted: type) -> Convert:
    def convert(value: Any, path: str) -> Any:
        if isinstance(value, bool | list | dict) or value is None:
            raise _unfit(value, path, wanted.__name__)
        try:
            return make(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            raise _unfit(value, path, wanted.__name__) from None

    return convert


def _none(value: Any, path: str) -> None:
    if value is not None:
        raise _unfit(value, path, "null")


_SCALARS: dict[Any, Convert] = {
    Any: _as_it_is,
    object: _as_it_is,
    str: _of(str),
    int: _of(int),
    float: _of(float, int),
    bool: _of(bool),
    dict: _of(dict),
    list: _of(list),
    None: _none,
    type(None): _none,
    # By way of text: the float 19.9 is not the decimal 19.9.
    Decimal: _wrap(lambda value: Decimal(str(value)), Decimal),
    UUID: _wrap(UUID, UUID),
    datetime: _wrap(datetime.fromisoformat, datetime),
    date: _wrap(date.fromisoformat, date),
}


def _literal(allowed: tuple[Any, ...]) -> Convert:
    def convert(value: Any, path: str) -> Any:
        if value not in allowed:
            raise _unfit(value, path, " or ".join(map(repr, allowed)))
        return value

    return convert


def _union(parts: list[Convert], annotation: Any) -> Convert:
    def convert(value: Any, path: str) -> Any:
        for part in parts:
            try:
                return part(value, path)
            except ShapeError:
                continue
        raise _unfit(value, path, str(annotation))

    return convert


def _dict(of: Convert) -> Convert:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _unfit(value, path, "dict")
        return {name: of(one, f"{path}.{name}") for name, one in value.items()}

    return convert


def _items(make: Any, of: Convert) -> Convert:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _unfit(value, path, "list")
        return make([of(one, f"{path}[{index}]") for index, one in enumerate(value)])

    return convert


def _pydantic(model: Any) -> Convert:
    def convert(value: Any, path: str) -> Any:
        try:
            return model.model_validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            raise ShapeError(f"{path}: {error}") from error

    return convert


def _dataclass(wanted: Any, known: dict[Any, Convert]) -> Convert:
    parts: dict[str, Convert] = {}
    required: set[str] = set()

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _unfit(value, path, f"an object ({wanted.__name__})")
        missing = required - value.keys()
        if missing:
            raise ShapeError(f"{path}.{min(missing)} is missing")
        return wanted(
            **{
                name: part(value[name], f"{path}.{name}")
                for name, part in parts.items()
                if name in value
            }
        )

    known[wanted] = convert  # before its fields, which may be of the same type
    hints = get_type_hints(wanted)
    for field in dataclasses.fields(wanted):
        if not field.init:
            continue
        parts[field.name] = _build(hints[field.name], known)
        if field.default is field.default_factory is dataclasses.MISSING:
            required.add(field.name)
    return convert


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def _unfit(value: Any, path: str, wanted: str) -> ShapeError:
    return ShapeError(f"{path} is {type(value).__name__}, not {wanted}")
