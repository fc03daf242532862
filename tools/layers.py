"""Draw the layers of txlake's code, from the import contract and the packages' docstrings.

`python tools/layers.py` writes docs/layers.svg; tests/test_frame.py says when it is out of date.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "layers.svg"

_WIDTH, _ROW, _GAP, _LEFT = 860, 40, 8, 20
_PURPOSE_WIDTH = 200
_PURE = frozenset({"conflict", "log", "protocol"})


def picture() -> str:
    """Return the SVG: one row a layer, from the one that users type to the one that all import."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contract["tool"]["importlinter"]["contracts"][0]["layers"]
    rows = [[name.strip() for name in layer.split("|")] for layer in layers]
    rows.remove(["__main__"])
    drawn = [_row(place, names) for place, names in enumerate(rows)]
    height = 44 + len(rows) * (_ROW + _GAP)
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
                'font-family="sans-serif" font-size="13">'
            ),
            "<title>The layers of txlake's code: imports only point down</title>",
            "<style>",
            ".b{fill:#e8eef7;stroke:#8aa0bd} .p{fill:#dcefe4;stroke:#5f9c7c}",
            ".n{fill:#1d2a3a;font-weight:bold} .t{fill:#44546a;font-size:11.5px}",
            "</style>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            (
                '<text class="t" x="20" y="24">Imports only point down. Green: without I/O, clock, '
                "randomness and Spark.</text>"
            ),
            *drawn,
            "</svg>",
            "",
        ]
    )


def _row(place: int, names: list[str]) -> str:
    width = (_WIDTH - 2 * _LEFT - (len(names) - 1) * _GAP) / len(names)
    top = 36 + place * (_ROW + _GAP)
    return "\n".join(
        _box(name, _LEFT + number * (width + _GAP), top, width) for number, name in enumerate(names)
    )


def _box(name: str, left: float, top: int, width: float) -> str:
    kind = "p" if name in _PURE else "b"
    purpose = _purpose(name, int((width - 16) / 6.2)) if width >= _PURPOSE_WIDTH else ""
    lines = [
        (
            f'<rect class="{kind}" x="{left:.0f}" y="{top}" width="{width:.0f}" '
            f'height="{_ROW}" rx="4"/>'
        ),
        f'<text class="n" x="{left + 8:.0f}" y="{top + 16}">{name}</text>',
        f'<text class="t" x="{left + 8:.0f}" y="{top + 32}">{escape(purpose)}</text>',
    ]
    return "\n".join(lines)


def _purpose(name: str, characters: int) -> str:
    """Return the first sentence of a package's or module's docstring, cut at a word."""
    package = ROOT / "src" / "txlake" / name
    file = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    text = " ".join(docstring.partition("\n\n")[0].split())
    sentence = (text.partition(": ")[2] or text).partition(". ")[0].rstrip(".")
    if len(sentence) <= characters:
        return sentence
    return sentence[:characters].rpartition(" ")[0].rstrip(",;:") + " ..."


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
