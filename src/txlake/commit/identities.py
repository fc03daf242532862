"""Values for identity columns: which values a statement may use, each once.

A path table uses the values beyond the mark in its log; of two transactions that use some, one
conflicts. A lake reserves ranges in its catalog, for good: both commit. Source: PROTOCOL.md,
"Identity Columns".
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from txlake.errors import InvalidRequest, TxlakeError
from txlake.ports import IdentityMarks
from txlake.protocol.identity import LONG_MAX, LONG_MIN, IdentityColumn

_logger = logging.getLogger(__name__)

# Of what is left, a range that is larger than needed is at most such a part, as long as that is
# enough for many tasks.
_SHARES = 8
_SHARE_MIN = 2**36


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRange:
    """`count` values of one column from `first` on, in its steps; `count` is at least 1."""

    column: IdentityColumn
    first: int
    count: int

    def value(self, place: int) -> int:
        """Return the value at a place; 0 is the first."""
        return self.first + place * self.column.step

    @property
    def last(self) -> int:
        """The last value."""
        return self.value(self.count - 1)


class Identities(Protocol):
    """A source of values for one table's identity columns."""

    def draw(
        self, table: str, table_id: str, column: IdentityColumn, *, at_least: int, at_most: int
    ) -> IdentityRange:
        """Return unused values, which nobody gets again: at least `at_least`, at most `at_most`.

        `table` is for messages; `table_id` is the metadata's.

        Raises InvalidRequest when fewer than `at_least` are left.
        """

    def give_back(self, table_id: str, drawn: IdentityRange, mark: int | None) -> None:
        """Give back the values beyond the mark, which weren't used; all of them for None.

        They may be lost.
        """

    def raise_to(self, table_id: str, column: IdentityColumn, mark: int) -> None:
        """Exclude the values up to the mark."""


def range_after(
    table: str, column: IdentityColumn, mark: int | None, *, at_least: int, at_most: int
) -> IdentityRange:
    """Return the next values beyond a mark: `at_most`, or a share of what is left.

    `mark` is None for a column without values. The share keeps a process that dies with its range
    from losing all values. Raises InvalidRequest when fewer than `at_least` are left.
    """
    first = column.next_value(mark)
    left = column.values_left(first)
    if left < at_least:
        raise exhausted_error(
            table, column, f"{at_least} more rows need values and {left} are left"
        )
    share = max(at_least, _SHARE_MIN, left // _SHARES)
    return IdentityRange(column=column, first=first, count=min(at_most, left, share))


def exhausted_error(table: str, column: IdentityColumn, found: str) -> InvalidRequest:
    """Return the error for a next value beyond BIGINT."""
    return InvalidRequest(
        f"{table}: identity column {column.name!r} (START WITH {column.start} INCREMENT BY "
        f"{column.step}) is exhausted: {found} within BIGINT; give the rows another key, or write "
        "them to a new table with a smaller step. Nothing was written"
    )


def key_of(table_id: str, column: IdentityColumn) -> tuple[str, str]:
    """Return the key of a column, which stays the same when it is renamed."""
    return table_id, column.physical_name


class LocalIdentities:
    """Identities of a table that the transaction creates, or whose mark decides at the commit."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], int] = {}

    def draw(
        self, table: str, table_id: str, column: IdentityColumn, *, at_least: int, at_most: int
    ) -> IdentityRange:
        """Return the values after the later of the column's mark and the last drawn here."""
        key = key_of(table_id, column)
        mark = column.later_mark(column.mark, self._marks.get(key))
        drawn = range_after(table, column, mark, at_least=at_least, at_most=at_most)
        self._marks[key] = drawn.last
        return drawn

    def give_back(self, table_id: str, drawn: IdentityRange, mark: int | None) -> None:
        """Make the values beyond the mark available again, unless others were drawn after them."""
        key = key_of(table_id, drawn.column)
        if self._marks.get(key) == drawn.last:
            self._marks[key] = _mark_before(drawn) if mark is None else mark

    def raise_to(self, table_id: str, column: IdentityColumn, mark: int) -> None:
        """Exclude the values up to the mark from later draws."""
        key = key_of(table_id, column)
        reached = column.later_mark(self._marks.get(key), mark)
        assert reached is not None
        self._marks[key] = reached


@dataclass(frozen=True, slots=True)
class CatalogIdentities:
    """Identities of a lake's table: ranges that its catalog reserves.

    `entry_id` is the catalog's id of the table.
    """

    book: IdentityMarks
    entry_id: str

    def draw(
        self, table: str, table_id: str, column: IdentityColumn, *, at_least: int, at_most: int
    ) -> IdentityRange:
        """Reserve values in the catalog and return them, which are lost unless they are
        given back.
        """
        found: list[IdentityRange] = []

        def last(mark: int | None) -> int:
            beyond = column.later_mark(column.mark, mark)
            drawn = range_after(table, column, beyond, at_least=at_least, at_most=at_most)
            found.append(drawn)
            return drawn.last

        self.book.advance(self.entry_id, self._name(table_id, column), last)
        return found[-1]

    def give_back(self, table_id: str, drawn: IdentityRange, mark: int | None) -> None:
        """Give values back to the catalog; they stay unused if others were reserved meanwhile, or
        it fails.
        """
        back = _mark_before(drawn) if mark is None else mark
        if not LONG_MIN <= back <= LONG_MAX:
            return
        try:
            self.book.give_back(self.entry_id, self._name(table_id, drawn.column), drawn.last, back)
        except TxlakeError as error:
            _logger.info("%s: values stay unused: %s", drawn.column.name, error)

    def raise_to(self, table_id: str, column: IdentityColumn, mark: int) -> None:
        """Exclude the values up to the mark, in the catalog."""

        def further(known: int | None) -> int:
            reached = column.later_mark(known, mark)
            assert reached is not None
            return reached

        self.book.advance(self.entry_id, self._name(table_id, column), further)

    def _name(self, table_id: str, column: IdentityColumn) -> str:
        """Return a name of one length for the column, however long its own is."""
        text = "\0".join(key_of(table_id, column))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _mark_before(drawn: IdentityRange) -> int:
    """Return the mark at which the first of them is next; its column had one like it, or none."""
    return drawn.first - drawn.column.step


@dataclass(frozen=True, slots=True)
class LazyIdentities:
    """Identities that are looked up with the first value; `find` takes the table's id."""

    find: Callable[[str], Identities]

    def draw(
        self, table: str, table_id: str, column: IdentityColumn, *, at_least: int, at_most: int
    ) -> IdentityRange:
        who = self.find(table_id)
        return who.draw(table, table_id, column, at_least=at_least, at_most=at_most)

    def give_back(self, table_id: str, drawn: IdentityRange, mark: int | None) -> None:
        self.find(table_id).give_back(table_id, drawn, mark)

    def raise_to(self, table_id: str, column: IdentityColumn, mark: int) -> None:
        self.find(table_id).raise_to(table_id, column, mark)
