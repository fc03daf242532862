"""What a transaction's part on one table needs of its parts on other tables."""

from __future__ import annotations

from msgspec.structs import replace

from tests.commit.committing import begin
from tests.commit.log_of import LogOf, add, metadata
from txlake.commit.part_states import PartSummaries
from txlake.commit.table_transaction import TableTransaction


def _part(table_id: str, *, reads: bool = False, changes: bool = False) -> TableTransaction:
    table = LogOf()
    creator = begin(table)
    creator.stage([replace(metadata(), id=table_id), add("a")], operation="WRITE")
    creator.commit()
    part = begin(table)
    if reads:
        part.read()
    if changes:
        part.stage([add("b")], operation="WRITE")
    return part


def _summaries(*parts: TableTransaction) -> PartSummaries:
    return PartSummaries(part.part_summary for part in parts)


def test_a_part_sees_what_the_others_read_and_changed() -> None:
    reader, writer, both = (
        _part("r", reads=True),
        _part("w", changes=True),
        _part("b", reads=True, changes=True),
    )
    beside = _summaries(reader, writer, both)
    assert beside.read_beside(reader) == {"b"}
    assert beside.read_beside(writer) == {"r", "b"}
    assert beside.read_beside(both) == {"r"}
    assert beside.changed_beside(reader) == {"w", "b"}
    assert beside.changed_beside(writer) == {"b"}
    assert beside.changed_beside(both) == {"w"}
    found = beside.of(writer)
    assert found is not None
    assert found.part is writer
    assert beside.of(_part("w")) is None


def test_a_table_id_that_two_parts_have_is_the_others_too() -> None:
    one, copy = _part("t", changes=True), _part("t", changes=True)
    assert _summaries(one, copy).changed_beside(one) == {"t"}
    assert _summaries(one).changed_beside(one) == frozenset()


def test_a_part_that_changes_alone_has_no_changes_beside_it() -> None:
    reader, writer = _part("r", reads=True), _part("w", changes=True)
    beside = _summaries(reader, writer)
    assert beside.has_changes_beside(reader)
    assert beside.changes_data_beside(reader)
    assert not beside.has_changes_beside(writer)
    assert not beside.changes_data_beside(writer)
    other = _summaries(_part("x", changes=True), writer)
    assert other.has_changes_beside(writer)
    assert other.changes_data_beside(writer)
