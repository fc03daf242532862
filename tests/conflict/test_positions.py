"""Where a commit put the rows that it moved, as far as its files say."""

from __future__ import annotations

import msgspec
import pytest
from pyroaring import BitMap64

from tests.conflict.cases import add, gone, vector
from txlake.conflict.positions import RemovedRows, RowMoves, Run
from txlake.errors import CorruptTable
from txlake.protocol.actions import Add, DeletionVector
from txlake.protocol.sources import Source


class Counted:
    """Vectors of which none can be read, or all are empty; the requests are counted."""

    def __init__(self, *, readable: bool = True) -> None:
        self.readable = readable
        self.reads = 0

    def of(self, vector: DeletionVector) -> BitMap64:
        return self.of_id(vector.unique_id)

    def of_id(self, vector_id: str) -> BitMap64:
        self.reads += 1
        if not self.readable:
            raise CorruptTable("gone")
        return BitMap64()


class Sets:
    """Vectors and sets of positions by their ids."""

    def __init__(self, **positions: list[int]) -> None:
        self.positions = {name: BitMap64(found) for name, found in positions.items()}

    def of(self, vector: DeletionVector) -> BitMap64:
        return self.of_id(vector.unique_id)

    def of_id(self, vector_id: str) -> BitMap64:
        return self.positions[vector_id]


SOURCE = msgspec.structs.replace(gone(add("a"), data_change=False), stats='{"numRecords":3}')


def output(text: str | None, rows: int = 3) -> Add:
    tags = None if text is None else {"txlake.sources": text}
    made = add("out", data_change=False)
    return msgspec.structs.replace(made, tags=tags, stats=f'{{"numRecords":{rows}}}')


def test_a_file_that_is_listed_again_was_not_rewritten() -> None:
    listed = add("a", dv=vector(1), data_change=False)
    assert not RemovedRows(before=SOURCE, after=listed).is_rewrite
    assert RemovedRows(before=SOURCE).is_rewrite
    assert not RemovedRows(before=gone(add("a"))).is_rewrite


def test_runs_of_a_file_that_was_not_removed_say_nothing() -> None:
    moves = RowMoves([SOURCE], [output('[["a",null,0,2],["elsewhere",null,0,1]]')])
    assert moves.of("elsewhere", Counted()) is None


def test_a_file_that_is_rewritten_itself_is_no_output() -> None:
    again = gone(add("out"), data_change=False)
    assert RowMoves([SOURCE], [output('[["a",null,0,3]]')]).of("a", Counted()) is not None
    assert RowMoves([SOURCE, again], [output('[["a",null,0,3]]')]).of("a", Counted()) is None


@pytest.mark.parametrize("text", [None, "", "{", '[["a",null,0]]', '{"a":1}'])
def test_a_record_that_cannot_be_read_says_nothing(text: str | None) -> None:
    assert RowMoves([SOURCE], [output(text)]).of("a", Counted()) is None


def test_statistics_that_cannot_be_read_say_nothing() -> None:
    told = output('[["a",null,0,3]]')
    assert RowMoves([SOURCE], [msgspec.structs.replace(told, stats="{")]).of("a", Counted()) is None
    unreadable = msgspec.structs.replace(SOURCE, stats="{")
    assert RowMoves([unreadable], [told]).of("a", Counted()) is None


def test_a_vector_that_cannot_be_read_says_nothing() -> None:
    moves = RowMoves([SOURCE], [output('[["a","v",0,3]]')])
    assert moves.of("a", Counted(readable=False)) is None


def test_a_source_is_looked_into_once() -> None:
    moves, vectors = RowMoves([SOURCE], [output('[["a","v",0,3]]')]), Counted()
    assert moves.of("a", vectors) == moves.of("a", vectors) != None  # noqa: E711
    assert vectors.reads == 1


@pytest.mark.parametrize(
    ("text", "sets", "rows"),
    [
        ('[["a",null,0,1],["a",null,2,2]]', {}, 3),
        ('[["a",null,0,1],["a",null,2,1]]', {}, 2),
        ('[["a",null,0,2]]', {}, 2),
        ('[["a",null,0,1,"s"],["a",null,0,2]]', {"s": [0]}, 3),
        ('[["a",null,0,1,"s"],["a",null,0,2,"r"]]', {"s": [0, 1], "r": [2]}, 3),
        ('[["a",null,0,2,"s"],["a",null,0,2,"r"]]', {"s": [0, 1], "r": [1, 2]}, 4),
        ('[["a",null,0,2,"s"],["a",null,0,1,"r"]]', {"s": [0, 1], "r": [1]}, 3),
        ('[["a",null,0,2,"s"],["a",null,0,1,"r"]]', {"s": [0, 1], "r": [3]}, 3),
        ('[["a",null,0,2,"s"]]', {"s": [0, 1]}, 2),
        ('[["a","v",0,2,"s"]]', {"s": [0, 1], "v": [1]}, 2),
    ],
    ids=[
        "a gap", "a row short", "the last row missing", "both kinds", "other number",
        "a row twice", "a row twice for another", "a row that is none", "one set missing", "gone",
    ],
)  # fmt: skip
def test_a_record_that_does_not_hold_every_live_row_says_nothing(
    text: str, sets: dict[str, list[int]], rows: int
) -> None:
    assert RowMoves([SOURCE], [output(text, rows)]).of("a", Sets(**sets)) is None


def test_a_record_of_sets_without_a_count_of_rows_says_nothing() -> None:
    told = output('[["a",null,0,3,"s"]]')
    uncounted = msgspec.structs.replace(SOURCE, stats=None)
    assert RowMoves([uncounted], [told]).of("a", Sets(s=[0, 1, 2])) is None
    assert RowMoves([SOURCE], [told]).of("a", Sets(s=[0, 1, 2])) is not None


def test_sets_and_deleted_rows_are_together_the_file() -> None:
    moves = RowMoves([SOURCE], [output('[["a","v",0,1,"s"],["a","v",0,1,"r"]]', 2)])
    runs = moves.of("a", Sets(v=[1], s=[2], r=[0]))
    assert runs is not None
    assert [run.offset for run in runs] == [0, 1]


def test_rows_stand_in_the_order_of_their_set() -> None:
    def run(positions_id: str | None) -> Run:
        source = Source(path="a", vector_id=None, first=0, rows=3, positions_id=positions_id)
        return Run(output="out", offset=10, source=source)

    sets = Sets(s=[1, 3, 4])
    assert run("s").places(BitMap64([0, 1, 4, 9]), sets) == BitMap64([10, 12])
    assert run("s").all_places() == BitMap64([10, 11, 12])
    assert run(None).places(BitMap64([0, 2, 3]), sets) == BitMap64([10, 12])
