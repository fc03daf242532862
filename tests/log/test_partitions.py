from __future__ import annotations

import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.commit.log_of import add
from txlake.log import partitions
from txlake.log.block import Block, BlockRows
from txlake.log.partitions import partition_groups, partition_texts
from txlake.protocol.file_rows import STRING_MAP, files_table

_Row = list[tuple[str, str | None]] | None


def _table(*chunks: list[_Row]) -> pa.Table:
    column = pa.chunked_array([pa.array(rows, STRING_MAP) for rows in chunks], STRING_MAP)
    return pa.table({"partition_values": column})


def _expected(rows: list[_Row], name: str) -> list[str | None]:
    return [next((value for key, value in row or () if key == name), None) for row in rows]


_LISTS: list[list[_Row]] = [
    [[("a", "1")], [("a", "2")], [("a", None)]],
    [[("a", "1"), ("b", "x")], [("a", "2"), ("b", "y")]],
    [[("a", "1"), ("b", "x")], [("b", "y"), ("a", "2")]],
    [[("a", "1")], [("b", "2")]],
    [[("a", "1")], None, [("a", "3")]],
    [[("a", "1")], [], [("a", "3"), ("b", "4")]],
    [[("b", "1"), ("a", "first"), ("a", "second")], [("a", "x"), ("a", "y"), ("b", "z")]],
    [[], []],
    [],
]


@pytest.mark.parametrize("rows", _LISTS)
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_each_file_has_its_own_text(rows: list[_Row], name: str) -> None:
    table = _table(rows, [[("a", "more"), ("b", None)]])
    expected = _expected([*rows, [("a", "more"), ("b", None)]], name)
    assert partition_texts(table, name).to_pylist() == expected
    for start in range(len(expected)):
        assert partition_texts(table.slice(start), name).to_pylist() == expected[start:]
        assert partition_texts(table.slice(start, 1), name).to_pylist() == expected[start:][:1]


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["b", "c", "a"]])
def test_groups_are_the_files_again(names: list[str]) -> None:
    chance = random.Random(3)
    rows: list[_Row] = [
        [(name, chance.choice(["", "1", "2", None])) for name in ("a", "b", "c")]
        for _ in range(600)
    ]
    table = _table(rows[:250], rows[250:])
    groups = partition_groups(table, names)
    assert groups is not None
    assert groups.values.num_rows < 70
    of_files = groups.values.take(groups.of_files)
    for name in names:
        assert partition_texts(of_files, name).to_pylist() == _expected(rows, name)
    distinct = [tuple(row) for row in groups.values["partition_values"].to_pylist()]
    assert len(set(distinct)) == len(distinct)


def test_many_values_make_no_groups() -> None:
    rows: list[_Row] = [[("a", str(at % 20)), ("b", str(at // 20))] for at in range(200)]
    assert partition_groups(_table(rows), ["a"]) is not None
    assert partition_groups(_table(rows), ["a", "b"]) is None
    assert partition_groups(_table([[("a", str(at))] for at in range(200)]), ["a"]) is None


def test_the_groups_of_a_block_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    adds = [
        msgspec.structs.replace(add(f"f{at}"), partition_values={"a": str(at % 5)})
        for at in range(100)
    ]
    block = Block.of_table(files_table(adds))
    keep = np.arange(100) % 3 == 0
    expected = partition_groups(BlockRows(block).table(), ["a"])
    assert expected is not None
    first = partition_groups(BlockRows(block), ["a"])
    assert first is not None
    monkeypatch.setattr(partitions, "_grouped", None)
    some = partition_groups(BlockRows(block, keep), ["a"])
    assert some is not None
    assert first.of_files.equals(expected.of_files)
    assert some.of_files.equals(expected.of_files.filter(pa.array(keep)))
    assert partition_groups(BlockRows(block), ["a"]) is first
