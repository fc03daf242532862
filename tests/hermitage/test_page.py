"""docs/hermitage.md and its picture are what the cells give; the cells are checked beside."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.hermitage.expected import expected
from tests.hermitage.page import PAGE, PICTURE, draw
from tests.hermitage.published import COLUMNS, NO, PUBLISHED, SOME, YES
from tests.hermitage.running import Level, Place
from tests.hermitage.scripts import SCRIPTS


@pytest.mark.parametrize(("path", "number"), [(PAGE, 0), (PICTURE, 1)], ids=["page", "picture"])
def test_it_is_current(path: object, number: int) -> None:
    text = (PAGE, PICTURE)[number].read_text(encoding="utf-8")
    assert text == draw(expected())[number], f"run `make hermitage`, then look at {path}"


def test_another_outcome_is_another_page() -> None:
    cells = expected()
    page, picture = draw(cells)
    for key in cells:
        other = {**cells, key: "refused" if cells[key] == "allowed" else "allowed"}
        assert draw(other)[0] != page
        assert draw(other)[1] != picture


def test_the_picture_has_every_cell() -> None:
    root = ElementTree.fromstring(draw(expected())[1])
    titles = {one.text for one in root.iter("{http://www.w3.org/2000/svg}title")}
    assert len(titles) == len(SCRIPTS) * len(Level) * len(Place)


def test_what_is_published_is_whole() -> None:
    for one in PUBLISHED:
        assert len(one.marks) == len(COLUMNS)
        assert set(one.marks) <= {YES, NO, SOME}
        assert one.sources
        assert one.basis.split(";")[0] in {"tested", "documented", "derived"}
