"""Who gives the values of identity columns, and that nobody else gives them too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from txlake.commit.identities import (
    CatalogIdentities,
    Identities,
    IdentityRange,
    LazyIdentities,
    LocalIdentities,
)
from txlake.errors import InvalidRequest, Unavailable
from txlake.protocol.identity import LONG_MAX, LONG_MIN, IdentityColumn

ID = IdentityColumn(
    name="id", physical_name="id", start=1, step=1, mark=None, allows_explicit=False
)


@dataclass
class Book:
    """An IdentityMarks in memory."""

    marks: dict[tuple[str, str], int] = field(default_factory=dict)
    is_reached: bool = True

    def advance(self, table_id: str, column: str, last: Callable[[int | None], int]) -> None:
        key = (table_id, column)
        self.marks[key] = last(self.marks.get(key))

    def give_back(self, table_id: str, column: str, mark: int, earlier: int) -> None:
        if not self.is_reached:
            raise Unavailable("the catalog is away")
        if self.marks[table_id, column] == mark:
            self.marks[table_id, column] = earlier


def draw(
    identities: Identities, column: IdentityColumn = ID, count: int = 2, *, table_id: str = "m"
) -> IdentityRange:
    return identities.draw("t", table_id, column, at_least=count, at_most=count)


def values(drawn: IdentityRange) -> list[int]:
    return [drawn.value(place) for place in range(drawn.count)]


@pytest.fixture(params=["here", "reserved"])
def identities(request: pytest.FixtureRequest) -> Identities:
    return LocalIdentities() if request.param == "here" else CatalogIdentities(Book(), "entry")


def test_values_go_on(identities: Identities) -> None:
    assert values(draw(identities)) == [1, 2]
    assert values(draw(identities)) == [3, 4]
    later = replace(ID, mark=10)
    assert values(draw(identities, later)) == [11, 12]
    assert values(draw(identities)) == [13, 14]  # who reads an older version


def test_steps_go_down(identities: Identities) -> None:
    down = replace(ID, start=10, step=-5)
    assert values(draw(identities, down)) == [10, 5]
    assert values(draw(identities, replace(down, mark=-10))) == [-15, -20]


def test_each_table_and_column_has_its_own(identities: Identities) -> None:
    draw(identities)
    assert values(draw(identities, replace(ID, physical_name="other"))) == [1, 2]
    assert values(draw(identities, table_id="replaced")) == [1, 2]
    assert values(draw(identities, replace(ID, name="renamed"))) == [3, 4]


def test_what_is_left_is_given(identities: Identities) -> None:
    near = replace(ID, mark=LONG_MAX - 3)
    drawn = identities.draw("t", "m", near, at_least=1, at_most=100)
    assert values(drawn) == [LONG_MAX - 2, LONG_MAX - 1, LONG_MAX]
    with pytest.raises(
        InvalidRequest, match=r"^t: identity column 'id' .*exhausted: 1 more rows .* 0 are left"
    ):
        draw(identities, near, 1)


def test_who_draws_more_than_it_needs_leaves_some(identities: Identities) -> None:
    wide = replace(ID, step=10**6)
    sizes = [identities.draw("t", "m", wide, at_least=1, at_most=2**44).count for _ in range(20)]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) < wide.values_left(wide.start)
    assert draw(identities, wide).count == 2
    assert identities.draw("t", "other", ID, at_least=1, at_most=2**44).count == 2**44


def test_too_many_are_refused_and_none_is_drawn(identities: Identities) -> None:
    near = replace(ID, mark=LONG_MAX - 3)
    with pytest.raises(InvalidRequest, match="4 more rows need values and 3 are left"):
        draw(identities, near, 4)
    assert values(draw(identities, near, 3)) == [LONG_MAX - 2, LONG_MAX - 1, LONG_MAX]


def test_what_was_not_used_is_given_back(identities: Identities) -> None:
    drawn = draw(identities, count=100)
    identities.give_back("m", drawn, 7)
    assert values(draw(identities)) == [8, 9]
    drawn = draw(identities, count=100)
    identities.give_back("m", drawn, None)
    assert values(draw(identities)) == [10, 11]


def test_what_was_not_used_is_lost_where_others_went_on(identities: Identities) -> None:
    drawn = draw(identities, count=100)
    draw(identities)
    identities.give_back("m", drawn, 7)
    assert values(draw(identities)) == [103, 104]


def test_a_first_value_that_has_none_before_it(identities: Identities) -> None:
    lowest = replace(ID, start=LONG_MIN)
    drawn = draw(identities, lowest, 3)
    identities.give_back("m", drawn, None)
    assert draw(identities, lowest).first in (LONG_MIN, LONG_MIN + 3)


def test_a_mark_is_raised(identities: Identities) -> None:
    identities.raise_to("m", ID, 50)
    identities.raise_to("m", ID, 20)
    assert values(draw(identities)) == [51, 52]


def test_a_catalog_that_is_away_when_values_come_back_is_no_error() -> None:
    book = Book()
    identities = CatalogIdentities(book, "entry")
    drawn = draw(identities, count=100)
    book.is_reached = False
    identities.give_back("m", drawn, 7)
    assert values(draw(identities)) == [101, 102]


def test_two_transactions_of_a_lake_share_one_book() -> None:
    book = Book()
    one, other = CatalogIdentities(book, "entry"), CatalogIdentities(book, "entry")
    assert values(draw(one)) + values(draw(other)) == [1, 2, 3, 4]
    assert values(draw(CatalogIdentities(book, "another table"))) == [1, 2]
    assert all(len(digest) == 64 for _, digest in book.marks)


def test_who_gives_them_is_asked_when_they_are_drawn() -> None:
    asked: list[str] = []
    here = LocalIdentities()

    def find(table_id: str) -> Identities:
        asked.append(table_id)
        return here

    identities = LazyIdentities(find)
    assert asked == []
    drawn = draw(identities, count=5)
    identities.give_back("m", drawn, 2)
    identities.raise_to("m", ID, 8)
    assert values(draw(identities)) == [9, 10]
    assert asked == ["m"] * 4
