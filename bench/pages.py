"""Parts of the documents' pages that the bench writes, each between two marks."""

from __future__ import annotations

from pathlib import Path


def marks(name: str) -> tuple[str, str]:
    """The lines before and after a part."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def write_part(page: Path, name: str, part: str) -> None:
    """Write a part, which ends with a line, between its marks. Raises SystemExit when the page has
    none.
    """
    begin, end = marks(name)
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{page} has no place for the table: {begin} and {end}")
    page.write_text(f"{before}{begin}\n{part}{end}{after}", encoding="utf-8")
