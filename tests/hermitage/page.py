"""Draws docs/hermitage.md and its picture from cells, and runs the scripts for it as a program.

The words are in page.md beside it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import txlake
from tests.hermitage.expected import Key
from tests.hermitage.picture import picture
from tests.hermitage.published import COLUMNS, NO, PUBLISHED, SOME, YES, Source
from tests.hermitage.running import Level, Place, Tables, cell, run
from tests.hermitage.scripts import SCRIPTS, Script
from tests.pages import ROOT

PAGE = ROOT / "docs" / "hermitage.md"
PICTURE = ROOT / "docs" / "hermitage.svg"
_WORDS = Path(__file__).with_name("page.md")

Cells = Mapping[Key, str]

LEVELS = {
    Level.SNAPSHOT: "Snapshot",
    Level.WRITE_SERIALIZABLE: "WriteSerializable",
    Level.SERIALIZABLE: "Serializable",
}
PLACES = {
    Place.PATH: "one path table",
    Place.CATALOG: "one table of a lake",
    Place.TWO_CATALOG: "two tables of a lake",
    Place.TWO_PATH: "two path tables",
}


def observe(lake: txlake.Lake, tables: Tables) -> dict[Key, str]:
    """Run every script at every level in every place."""
    return {
        (script.name, level, place): cell(script, run(script, level, place, lake, tables))
        for script in SCRIPTS
        for place in Place
        for level in Level
    }


def draw(cells: Cells) -> tuple[str, str]:
    """The page and its picture."""
    parts = {
        "grids": _grids(cells),
        "anomalies": _anomalies(),
        "beside": _beside(cells),
        "sources": _sources(),
    }
    words = _WORDS.read_text(encoding="utf-8")
    text = re.sub(r"{{(\w+)}}\n", lambda found: parts.pop(found[1]), words)
    assert not parts
    return text, picture(cells, LEVELS, PLACES)


def _anomalies() -> str:
    lines = (f"| {one.name} | {one.title} | {one.anomaly} |\n" for one in SCRIPTS)
    return "| name | | what must not be seen |\n| --- | --- | --- |\n" + "".join(lines) + "\n"


def _grids(cells: Cells) -> str:
    """A table for each group of places whose cells are all the same."""

    def grid(place: Place) -> list[str]:
        return [cells[script.name, level, place] for script in SCRIPTS for level in Level]

    parts = []
    for _, group in groupby(Place, key=grid):
        places = list(group)
        title = ", ".join(PLACES[place] for place in places)
        lines = [
            f"## {title[0].upper()}{title[1:]}\n",
            f"| anomaly | {' | '.join(LEVELS[level] for level in Level)} |",
            "| --- |" + " --- |" * len(Level),
        ]
        for script in SCRIPTS:
            row = [_shown(cells[script.name, level, places[0]]) for level in Level]
            lines.append(f"| {script.name} | {' | '.join(row)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) + "\n"


def _shown(outcome: str) -> str:
    if outcome == "allowed":
        return "**allowed**"
    if ": " not in outcome:
        return outcome
    gave_way = (one.split(": ") for one in outcome.split(", "))
    return ", ".join(f"`{error}` ({session})" for session, error in gave_way)


def _beside(cells: Cells) -> str:
    lines = [
        f"| system | level | {' | '.join(COLUMNS)} | basis |",
        "| --- | --- |" + " :-: |" * len(COLUMNS) + " --- |",
    ]
    for level in Level:
        marks = " | ".join(_mark(cells, level, column) for column in COLUMNS)
        lines.append(f"| txlake | {LEVELS[level]} | {marks} | tested, but for two path tables |")
    for one in PUBLISHED:
        numbers = ", ".join(f"[{_all_sources().index(source) + 1}]" for source in one.sources)
        marks = " | ".join(one.marks)
        lines.append(f"| {one.system} | {one.level} | {marks} | {one.basis} {numbers} |")
    return "\n".join(lines) + "\n\n"


def _mark(cells: Cells, level: Level, column: str) -> str:
    found = {
        cells[script.name, level, place] == "allowed"
        for script in SCRIPTS
        for place in Place
        if script.name.partition(",")[0] == column
        and not _is_ours(script)
        and place is not Place.TWO_PATH
    }
    return SOME if len(found) == 2 else NO if found == {True} else YES


def _is_ours(script: Script) -> bool:
    return script.name.endswith(("two writers", "in writes"))


def _all_sources() -> list[Source]:
    return list(dict.fromkeys(source for one in PUBLISHED for source in one.sources))


def _sources() -> str:
    lines = (f"{n}. *{s.title}*. {s.publisher}.\n" for n, s in enumerate(_all_sources(), 1))
    return "".join(lines)


def main() -> None:
    """Run everything and write both files."""
    from tests.spark_session import spark_session

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with txlake.connect(str(folder / "warehouse"), spark=spark_session()) as lake:
            cells = observe(lake, Tables(lake, str(folder / "tables")))
    for path, text in zip((PAGE, PICTURE), draw(cells), strict=True):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
