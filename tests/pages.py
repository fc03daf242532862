"""The pages that users read, as the tests of their truth see them: tables and blocks of code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def page(name: str) -> str:
    """A page of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def table(text: str, first_column: str) -> list[list[str]]:
    """The rows of the tables whose first column has this title, without their heads."""
    rows: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("| ---"):
            rows.append(cells)
        elif cells[0] == first_column:
            inside = True
    return rows


def codes(cell: str) -> list[str]:
    """What stands between backquotes."""
    return re.findall(r"`([^`]+)`", cell)
