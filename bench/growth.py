"""Costs at sizes of their work that grow tenfold, as docs/growth.md shows them: plots, tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.amounts import amount, count
from bench.chart import STYLE
from bench.engines import TITLES
from bench.points import PREFIX
from bench.results import Results

AXES = {
    "rows": "rows in the table",
    "files": "files of the table",
    "commits": "commits on the table",
    "tables": "tables in a transaction",
    "writers": "writers on one table",
}
"""What grows, and its words; each is an image of docs/growth.md."""

_WIDTH, _LEFT, _PLOT, _HEIGHT, _HEAD = 860, 70, 250, 150, 46
_GAP = 30
_ACROSS = 3


@dataclass(frozen=True, slots=True)
class Curve:
    """One cost of an engine's: milliseconds by size, smallest size first."""

    axis: str
    cost: str
    engine: str
    points: Sequence[tuple[int, float]]


def curves(results: Results) -> list[Curve]:
    """All that were measured: the medians of the rounds, by axis, cost and engine."""
    points: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for run in results.suites.values():
        for engine, details in run.details.items():
            for name, values in details.items():
                if name.startswith(f"{PREFIX}: "):
                    _, axis, cost, size = name.split(": ")
                    at = (int(size), statistics.median(values))
                    points.setdefault((axis, cost, engine), []).append(at)
    order = list(AXES), list(TITLES)
    return [
        Curve(axis, cost, engine, sorted(found))
        for (axis, cost, engine), found in sorted(
            points.items(),
            key=lambda item: (order[0].index(item[0][0]), item[0][1], order[1].index(item[0][2])),
        )
    ]


def markdown(results: Results) -> str:
    """The page's part: for each axis its plots, and a table of by how much each tenfold costs."""
    found = curves(results)
    parts = []
    for axis, words in AXES.items():
        of_axis = [curve for curve in found if curve.axis == axis]
        if not of_axis:
            continue
        parts.append(f"## {words.capitalize()}\n\n![Each cost by {words}]({image(axis)})\n")
        parts.append(_table(of_axis, words))
    return "\n".join(parts) if parts else "Nothing of it has been measured.\n"


def image(axis: str) -> str:
    """The name of the axis's image."""
    return f"growth-{axis}.svg"


def _table(of_axis: Sequence[Curve], words: str) -> str:
    rows = [
        f"| cost | engine | at {words} | | tenfold costs |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for curve in of_axis:
        (first, low), (last, high) = curve.points[0], curve.points[-1]
        rows.append(
            f"| {curve.cost} | {TITLES[curve.engine]} | {count(first)}: {amount(low, 'ms')} "
            f"| {count(last)}: {amount(high, 'ms')} | {tenfold(curve):.2f} x |"
        )
    return "\n".join(rows) + "\n"


def tenfold(curve: Curve) -> float:
    """By how much the cost grows when the work grows tenfold, over the whole of the curve."""
    (first, low), (last, high) = curve.points[0], curve.points[-1]
    return float((high / low) ** (1 / math.log10(last / first))) if last > first else 1.0


def chart(of_axis: Sequence[Curve]) -> str:
    """The SVG's text: a plot for each cost, both of its scales logarithmic."""
    costs: dict[str, list[Curve]] = {}
    for curve in of_axis:
        costs.setdefault(curve.cost, []).append(curve)
    parts = [_legend(dict.fromkeys(curve.engine for curve in of_axis))]
    for number, (cost, one) in enumerate(costs.items()):
        left = _LEFT + number % _ACROSS * (_PLOT + _GAP)
        top = _HEAD + number // _ACROSS * (_HEIGHT + 60)
        parts.append(_plot(cost, one, left, top))
    height = _HEAD + math.ceil(len(costs) / _ACROSS) * (_HEIGHT + 60)
    words = escape(f"each cost by {AXES[of_axis[0].axis]}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="{words}">\n'
        f"<style>\n{STYLE}\n{_LINES}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


_LINES = """\
polyline { fill: none; stroke-width: 2; stroke: currentColor; }
.curve.spark { color: #b6bec7; } .curve.delta-spark { color: #6e7f91; }
.curve.delta-rs { color: #d59f3c; } .curve.ducklake { color: #b9772b; }
.curve.txlake { color: #0b7a6b; }
polyline.curve, polyline.along { fill: none; }
circle.curve { fill: currentColor; }
.along { stroke: #b42318; stroke-width: 1; stroke-dasharray: 3 3; }"""


def _legend(engines: Sequence[str] | dict[str, None]) -> str:
    parts, left = [], _LEFT
    for engine in engines:
        parts.append(f'<rect class="{engine}" x="{left}" y="10" width="12" height="9" rx="1.5"/>')
        parts.append(f'<text x="{left + 17}" y="18">{TITLES[engine]}</text>')
        left += 40 + 6 * len(TITLES[engine])
    parts.append(
        f'<text class="value" x="{left}" y="18">milliseconds, both scales logarithmic; '
        "the broken line grows as the work does</text>"
    )
    return "\n".join(parts)


def _plot(cost: str, of_cost: Sequence[Curve], left: int, top: int) -> str:
    sizes = sorted({size for curve in of_cost for size, _ in curve.points})
    values = [value for curve in of_cost for _, value in curve.points]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    first, span = math.log10(sizes[0]), math.log10(sizes[-1]) - math.log10(sizes[0]) or 1.0

    def x(size: float) -> float:
        return left + (math.log10(size) - first) / span * (_PLOT - 60)

    def y(value: float) -> float:
        return top + 16 + (high - math.log10(value)) / (high - low) * (_HEIGHT - 16)

    parts = [f'<text class="title" x="{left}" y="{top + 4}">{escape(cost)}</text>']
    for power in range(low, high + 1):
        at = y(10**power)
        parts.append(
            f'<line class="axis" x1="{left}" y1="{at:.1f}" x2="{left + _PLOT - 60}" y2="{at:.1f}"/>'
        )
        parts.append(
            f'<text class="value" x="{left - 6}" y="{at + 3:.1f}" text-anchor="end">'
            f"{10**power:g}</text>"
        )
    for size in sizes:
        parts.append(
            f'<text class="value" x="{x(size):.1f}" y="{top + _HEIGHT + 14}" '
            f'text-anchor="middle">{count(size)}</text>'
        )
    for curve in of_cost:
        along = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in curve.points)
        parts.append(f'<polyline class="curve {curve.engine}" points="{along}"/>')
        parts.extend(
            f'<circle class="curve {curve.engine}" cx="{x(size):.1f}" cy="{y(value):.1f}" r="2.5"/>'
            for size, value in curve.points
        )
    size, value = of_cost[-1].points[0]
    end = min(sizes[-1], size * 10**high / value)  # what grows as the work does, to the plot's edge
    flat = f"{x(size):.1f},{y(value):.1f} {x(end):.1f},{y(value * end / size):.1f}"
    parts.append(f'<polyline class="along" points="{flat}"/>')
    return "\n".join(parts)
