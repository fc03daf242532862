"""The bench of branches: all of its works run, and its table has a place in the page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import branches
from bench.pages import marks

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.no_interop("the bench's tables are its own"),
]

BEGIN, END = marks(branches.PART)


def test_the_table_is_written_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(branches, "PAGE", page)
    sizes = ["--tables", "5", "--branches", "2", "--commits", "4", "--page"]
    monkeypatch.setattr(sys, "argv", ["bench.branches", *sizes])
    branches.main()
    before, *rows, machine, end, after = page.read_text().splitlines()
    assert (before, end, after) == ("before", END, "after")
    assert machine.startswith("Medians on ")
    for what in (
        "| create a branch of 5 tables |",
        "| publish a branch with a row in each of 5 tables |",
        "| INSERT of a row on main beside 2 branches |",
        "| publish 4 commits on one table |",
    ):
        assert any(row.startswith(what) and row.endswith(" x |") for row in rows)
    assert rows[1] in capsys.readouterr().out
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="has no place for the table"):
        branches.main()


def test_the_page_has_a_place_for_it() -> None:
    text = branches.PAGE.read_text()
    assert BEGIN in text
    assert END in text
