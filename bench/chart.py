"""The bar chart, as SVG that is readable on light and on dark pages.

Each work has its own scale, from nothing to its slowest engine. A line across txlake's bar is what
there is to reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.amounts import amount
from bench.engines import TITLES
from bench.results import Line

_WIDTH = 860
_LEFT = 336
_BAR = 9
_STEP = 12
_GAP = 13
_LONGEST = 420
_HEAD = 46
_TEXT = 50  # the width of a value

STYLE = """\
text { font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.value { font-size: 9.5px; fill: #59636e; }
.missed { fill: #b42318; }
.spark { fill: #b6bec7; }
.delta-spark { fill: #6e7f91; }
.delta-rs { fill: #d59f3c; }
.ducklake { fill: #b9772b; }
.txlake { fill: #0b7a6b; }
.limit { stroke: #b42318; stroke-width: 1.5; }
.axis { stroke: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .value { fill: #9198a1; }
  .missed { fill: #ff7b72; }
  .spark { fill: #59636e; }
  .delta-spark { fill: #8b9bad; }
  .delta-rs { fill: #e3b04b; }
  .ducklake { fill: #f0913a; }
  .txlake { fill: #2dc4ae; }
  .limit { stroke: #ff7b72; }
  .axis { stroke: #3d444d; }
}"""


def chart(lines: Sequence[Line]) -> str:
    """The SVG's text."""
    parts = [_legend()]
    top = _HEAD
    for line in lines:
        parts.append(_work(line, top))
        top += _STEP * len(line.medians) + _GAP
    height = top + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="{_summary(lines)}">\n'
        f"<style>\n{STYLE}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _legend() -> str:
    parts = []
    left = _LEFT
    for engine, title in TITLES.items():
        parts.append(f'<rect class="{engine}" x="{left}" y="10" width="12" height="9" rx="1.5"/>')
        parts.append(f'<text x="{left + 17}" y="18">{title}</text>')
        left += 40 + 6 * len(title)
    parts.append(f'<line class="limit" x1="{left + 6}" y1="8" x2="{left + 6}" y2="21"/>')
    parts.append(f'<text x="{left + 14}" y="18">to reach</text>')
    parts.append(
        f'<text class="value" x="{_LEFT}" y="34">Each work on its own scale; '
        "shorter is better.</text>"
    )
    return "\n".join(parts)


def _work(line: Line, top: int) -> str:
    limit = _limit(line)
    longest = max(*line.medians.values(), limit or 0.0)
    height = _STEP * len(line.medians)
    parts = [
        _text(line.title, "title", top + 9),
        f'<line class="axis" x1="{_LEFT}" y1="{top - 2}" x2="{_LEFT}" y2="{top + height}"/>',
    ]
    if line.reached is not None:
        verdict = "reached" if line.reached else "missed"
        parts.append(_text(verdict, f"value {verdict}", top + 21))
    y = top
    for engine in TITLES:
        if engine not in line.medians:
            continue
        value = line.medians[engine]
        width = max(1.0, value / longest * _LONGEST)
        parts.append(
            f'<rect class="{engine}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" '
            'rx="1.5"/>'
        )
        end = width
        if limit is not None and engine == "txlake":
            reach = limit / longest * _LONGEST
            x = f"{_LEFT + reach:.1f}"
            parts.append(
                f'<line class="limit" x1="{x}" y1="{y - 2}" x2="{x}" y2="{y + _BAR + 2}"/>'
            )
            if width <= reach < width + _TEXT:
                end = reach
        parts.append(
            f'<text class="value" x="{_LEFT + end + 5:.1f}" y="{y + 8}">'
            f"{amount(value, line.work.unit)}</text>"
        )
        y += _STEP
    return "\n".join(parts)


def _text(text: str, kind: str, y: int) -> str:
    """Words beside the bars."""
    return f'<text class="{kind}" x="{_LEFT - 10}" y="{y}" text-anchor="end">{escape(text)}</text>'


def _limit(line: Line) -> float | None:
    """The value that txlake is to reach, None where the other engine wasn't measured."""
    target = line.work.target
    if target.against is None:
        return target.factor
    base = line.medians.get(target.against)
    return None if base is None else target.factor * base


def _summary(lines: Sequence[Line]) -> str:
    reached = sum(1 for line in lines if line.reached)
    return f"txlake beside other engines: {reached} of {len(lines)} targets reached"
