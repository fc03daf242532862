"""Where a commit put the rows that it moved, as far as its files say."""

from __future__ import annotations

import msgspec
import pytest
from pyroaring import BitMap64

from tests.conflict.cases import add, gone, vector
from txlake.conflict.positions import Loss, Moves
from txlake.errors import CorruptTable
from txlake.protocol.actions import Add, DeletionVector


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


SOURCE = msgspec.structs.replace(gone(add("a"), data_change=False), stats='{"numRecords":3}')


def output(text: str | None, rows: int = 3) -> Add:
    tags = None if text is None else {"txlake.sources": text}
    made = add("out", data_change=False)
    return msgspec.structs.replace(made, tags=tags, stats=f'{{"numRecords":{rows}}}')


def test_a_file_that_is_listed_again_was_not_rewritten() -> None:
    listed = add("a", dv=vector(1), data_change=False)
    assert not Loss(before=SOURCE, after=listed).is_rewrite
    assert Loss(before=SOURCE).is_rewrite
    assert not Loss(before=gone(add("a"))).is_rewrite


def test_runs_of_a_file_that_was_not_removed_say_nothing() -> None:
    moves = Moves([SOURCE], [output('[["a",null,0,2],["elsewhere",null,0,1]]')])
    assert moves.of("elsewhere", Counted()) is None


@pytest.mark.parametrize("text", [None, "", "{", '[["a",null,0]]', '{"a":1}'])
def test_a_record_that_cannot_be_read_says_nothing(text: str | None) -> None:
    assert Moves([SOURCE], [output(text)]).of("a", Counted()) is None


def test_statistics_that_cannot_be_read_say_nothing() -> None:
    told = output('[["a",null,0,3]]')
    assert Moves([SOURCE], [msgspec.structs.replace(told, stats="{")]).of("a", Counted()) is None
    unreadable = msgspec.structs.replace(SOURCE, stats="{")
    assert Moves([unreadable], [told]).of("a", Counted()) is None


def test_a_vector_that_cannot_be_read_says_nothing() -> None:
    moves = Moves([SOURCE], [output('[["a","v",0,3]]')])
    assert moves.of("a", Counted(readable=False)) is None


def test_a_source_is_looked_into_once() -> None:
    moves, vectors = Moves([SOURCE], [output('[["a","v",0,3]]')]), Counted()
    assert moves.of("a", vectors) == moves.of("a", vectors) != None  # noqa: E711
    assert vectors.reads == 1
