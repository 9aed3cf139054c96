"""Charts as SVG, drawn on the server: no script, no inline style, with words (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from bridge.console.wording import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 168, 52, 22, 8
_GAP = 2
_TICK_MINUTES = 15


def bars(points: Sequence[tuple[datetime, int, int]], *, title: str) -> Markup:
    """Draw sent and failed rows of each minute as bars; the last is paler, it is not over."""
    top = _nice(max((sent + failed for _, sent, failed in points), default=0))
    step = (_WIDTH - _LEFT) / max(1, len(points))
    usable = _HEIGHT - _TOP - _BOTTOM
    parts: list[Markup] = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + usable * (1 - share)
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                _LEFT, _WIDTH, y, y
            )
        )
        parts.append(
            Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
                _LEFT - 6, y + 4, _short(top * share)
            )
        )
    for index, (minute, sent, failed) in enumerate(points):
        x = _LEFT + index * step
        floor = float(_HEIGHT - _BOTTOM)
        words = f"{minute:%H:%M}: {count(sent)} sent" + (
            f", {count(failed)} failed" if failed else ""
        )
        for number, kind in ((sent, "sent"), (failed, "failed")):
            if not number:
                continue
            height = max(1.5, usable * number / top)
            floor -= height
            running = " running" if index == len(points) - 1 else ""
            parts.append(
                Markup(
                    '<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                    "<title>{}</title></rect>"
                ).format(kind + running, x + _GAP / 2, floor, max(1.0, step - _GAP), height, words)
            )
        if minute.minute % _TICK_MINUTES == 0:
            parts.append(
                Markup(
                    '<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>'
                ).format(x + step / 2, _HEIGHT - 4, f"{minute:%H:%M}")
            )
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, title, Markup("").join(parts))


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a whole: its name (a CSS class too) and its number."""

    name: str
    number: int


def stacked(shares: Sequence[Share], *, title: str) -> Markup:
    """Draw parts of a whole as one bar; each part that is there at all is seen."""
    whole = sum(share.number for share in shares)
    if not whole:
        return Markup("")
    parts: list[Markup] = []
    x = 0.0
    for share in shares:
        width = 100 * share.number / whole
        if share.number:
            width = max(1.5, width)
        parts.append(
            Markup(
                '<rect class="share {}" x="{:.2f}" y="0" width="{:.2f}" height="6">'
                "<title>{}: {}</title></rect>"
            ).format(share.name.lower(), x, width, share.name, count(share.number))
        )
        x += width
    return Markup(
        '<svg class="stacked" viewBox="0 0 {:.2f} 6" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(x, title, Markup("").join(parts))


def _nice(number: int) -> int:
    """Return the next round number that is not below: 1, 2, 3, 4, 5, 6, 8, 10, 20 and so on."""
    step = 1
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if step * factor >= number:
                return step * factor
        step *= 10


def _short(number: float) -> str:
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number / limit:g}{unit}"
    return f"{number:g}"
