"""One trace as a tree of text: who did what for one order, when and for how long (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NS_A_MS = 1e6
_LINKED = " (linked)"


@dataclass(frozen=True, slots=True)
class Span:
    """What one process reported about one piece of work; ids in hexadecimal, times in ns."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    service: str
    start_ns: int
    end_ns: int
    links: tuple[tuple[str, str], ...] = ()
    """Trace and span id of each span that this one is about without being its child."""
    failed: bool = False


@dataclass(slots=True)
class Branch:
    """A span with what hangs on it; `linked` where a link leads here and not a parent."""

    span: Span
    linked: bool
    branches: list[Branch] = field(default_factory=list)


def grow(spans: Iterable[Span], trace_id: str) -> list[Branch]:
    """Return the roots of a trace, with the spans of other traces that link into it.

    A span whose parent is not among the spans counts as a root. Each span stands once: under its
    parent if that is in the trace, else under the span that it links to. Of a span with many links
    (a relay sends many messages at once) only the one into this trace counts. Siblings stand in the
    order of their start.
    """
    everything = sorted(spans, key=lambda span: span.start_ns)
    branches = {_id(span): Branch(span, linked=False) for span in everything}
    roots: list[Branch] = []
    seen: set[tuple[str, str]] = set()
    for span in everything:
        if span.trace_id == trace_id:
            seen.add(_id(span))
            parent = branches.get((trace_id, span.parent_id or ""))
            (parent.branches if parent else roots).append(branches[_id(span)])
    _hang_links(everything, branches, seen)
    for branch in branches.values():
        branch.branches.sort(key=lambda one: one.span.start_ns)
    return roots


def _hang_links(
    everything: list[Span],
    branches: dict[tuple[str, str], Branch],
    seen: set[tuple[str, str]],
) -> None:
    """Hang what links into the trace on it, and what is below that, until nothing more does."""
    while True:
        found = [span for span in everything if _id(span) not in seen and _anchor(span, seen)]
        if not found:
            return
        for span in found:
            anchor = _anchor(span, seen)
            if anchor is None or _id(span) in seen:
                continue
            branch = branches[_id(span)]
            branch.linked = anchor != (span.trace_id, span.parent_id)
            branches[anchor].branches.append(branch)
            seen.add(_id(span))


def _anchor(span: Span, seen: set[tuple[str, str]]) -> tuple[str, str] | None:
    parent = (span.trace_id, span.parent_id or "")
    if parent in seen:
        return parent
    return next((link for link in span.links if link in seen), None)


def _id(span: Span) -> tuple[str, str]:
    return span.trace_id, span.span_id


def names(roots: Iterable[Branch]) -> list[str]:
    """Return the names of all spans, depth first."""
    return [span.name for span in _spans(roots)]


def duration_ns(roots: Iterable[Branch]) -> int:
    """Return the nanoseconds from the first start to the last end."""
    spans = list(_spans(roots))
    return max(s.end_ns for s in spans) - min(s.start_ns for s in spans) if spans else 0


def _spans(roots: Iterable[Branch]) -> Iterator[Span]:
    for branch in roots:
        yield branch.span
        yield from _spans(branch.branches)


def draw(roots: list[Branch]) -> list[str]:
    """Return the lines: the tree, the service, the start after the root's, and the duration."""
    if not roots:
        return []
    zero = min(branch.span.start_ns for branch in roots)
    rows: list[tuple[str, Span]] = []
    for root in roots:
        rows.append((_title(root), root.span))
        _draw_below(root, "", rows)
    width = max(len(text) for text, _ in rows)
    services = max(len(span.service) for _, span in rows)
    return [
        f"{text:<{width}}  {span.service:<{services}}  {_ms(span.start_ns - zero):>9}  "
        f"took {_ms(span.end_ns - span.start_ns):>9}"
        for text, span in rows
    ]


def _draw_below(branch: Branch, indent: str, rows: list[tuple[str, Span]]) -> None:
    for index, below in enumerate(branch.branches, start=1):
        is_last = index == len(branch.branches)
        rows.append((f"{indent}{'└─ ' if is_last else '├─ '}{_title(below)}", below.span))
        _draw_below(below, indent + ("   " if is_last else "│  "), rows)


def _title(branch: Branch) -> str:
    return (
        branch.span.name
        + (_LINKED if branch.linked else "")
        + (" FAILED" if branch.span.failed else "")
    )


def _ms(nanoseconds: int) -> str:
    return (
        f"{nanoseconds / _NS_A_MS:+.1f} ms"
        if nanoseconds < 0
        else f"{nanoseconds / _NS_A_MS:.1f} ms"
    )
