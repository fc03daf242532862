"""The grid as an SVG: a row for each anomaly, a square for each level in each place."""

from __future__ import annotations

from collections.abc import Mapping

from tests.hermitage.expected import Key
from tests.hermitage.running import Level, Place
from tests.hermitage.scripts import SCRIPTS

_LEFT, _TOP, _SIDE, _GAP, _BETWEEN = 150, 72, 28, 4, 34
_LABEL = "Hermitage's anomalies at each level of txlake"
_STYLE = """\
text { font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.place { font-weight: 600; }
.level { font-size: 9.5px; fill: #59636e; }
.snapshot { fill: #0b7a6b; }
.conflict { fill: #3b6fb5; }
.allowed { fill: #c9372c; }
.refused { fill: #b6bec7; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .level { fill: #9198a1; }
  .snapshot { fill: #2dc4ae; }
  .conflict { fill: #6ea2e8; }
  .allowed { fill: #ff7b72; }
  .refused { fill: #59636e; }
}
"""
_MEANINGS = {
    "snapshot": "prevented: one snapshot is read",
    "conflict": "prevented: a session gets an error",
    "allowed": "allowed",
    "refused": "refused",
}


def picture(
    cells: Mapping[Key, str], levels: Mapping[Level, str], places: Mapping[Place, str]
) -> str:
    """The cells as squares; each says in its title what it is."""
    step = _SIDE + _GAP
    width_of_place = step * len(Level) + _BETWEEN
    width = _LEFT + width_of_place * len(Place) + 20
    height = _TOP + step * len(SCRIPTS) + 34
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_LABEL}">',
        f"<style>\n{_STYLE}</style>",
    ]
    for column, place in enumerate(Place):
        left = _LEFT + column * width_of_place
        lines.append(f'<text class="place" x="{left}" y="18">{places[place]}</text>')
        for number, level in enumerate(Level):
            x, y = left + number * step + _SIDE // 2 + 3, _TOP - 6
            lines.append(
                f'<text class="level" x="{x}" y="{y}" '
                f'transform="rotate(-35 {x} {y})">{_short(levels[level])}</text>'
            )
    for row, script in enumerate(SCRIPTS):
        y = _TOP + row * step
        name = f'<text x="{_LEFT - 10}" y="{y + 18}" text-anchor="end">{script.name}</text>'
        lines.append(name)
        for column, place in enumerate(Place):
            for number, level in enumerate(Level):
                outcome = cells[script.name, level, place]
                kind = "conflict" if ": " in outcome else outcome
                x = _LEFT + column * width_of_place + number * step
                lines.append(
                    f'<rect class="{kind}" x="{x}" y="{y}" width="{_SIDE}" height="{_SIDE}" rx="3">'
                    f"<title>{script.name}, {levels[level]}, {places[place]}: {outcome}</title>"
                    "</rect>"
                )
    x = 12
    for kind, meaning in _MEANINGS.items():
        y = height - 20
        lines.append(f'<rect class="{kind}" x="{x}" y="{y}" width="10" height="10" rx="2"/>')
        lines.append(f'<text x="{x + 15}" y="{y + 9}">{meaning}</text>')
        x += 32 + 7 * len(meaning)
    return "\n".join((*lines, "</svg>", ""))


def _short(level: str) -> str:
    return {"WriteSerializable": "WriteSer.", "Serializable": "Serial."}.get(level, level)
