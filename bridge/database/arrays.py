"""Array parameters as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def array(numbers: Iterable[int]) -> str:
    """Write integers as an array literal.

    Half the cost of adapting a Python list; and psycopg would choose the element type by the
    values, which makes the server keep one plan for each type.
    """
    return "{" + ",".join(map(str, numbers)) + "}"
