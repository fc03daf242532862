"""What a rewrite's tombstones say, held against another engine's way to read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.conflict.cases import add, gone, vector
from tests.conflict.histories import History, Transaction
from tests.conflict.racing import committed, delete
from txlake.commit.tombstone_tags import with_compaction_tags
from txlake.conflict.levels import Level
from txlake.protocol.actions import Add, Remove
from txlake.protocol.sources import Source, sources_text

INTO, INFO = "compactedInto", "compactionInfo"


def removed(path: str = "a", rows: int | None = 3, **changes: Any) -> Remove:
    file = gone(add(path, data_change=False), data_change=False)
    stats = None if rows is None else f'{{"numRecords":{rows}}}'
    return msgspec.structs.replace(file, **{"stats": stats, **changes})


def output(*sources: Source, **changes: Any) -> Add:
    rows = sum(one.rows for one in sources)
    made = msgspec.structs.replace(
        add("out", data_change=False),
        tags={"txlake.sources": sources_text(sources)},
        stats=f'{{"numRecords":{rows}}}',
    )
    return msgspec.structs.replace(made, **changes)


def rows_of(path: str, rows: int, vector_id: str | None = None, **others: Any) -> Source:
    return Source(path=path, vector_id=vector_id, rows=rows, **{"first": 0, **others})


def tagged(files: Sequence[Remove], outputs: Sequence[Add]) -> list[dict[str, str | None] | None]:
    return [one.tags for one in with_compaction_tags(files, outputs)]


def place(offset: int, rows: int, path: str = "out") -> dict[str, str]:
    return {
        INTO: f'["{path}"]',
        INFO: f'[{{"rowOffsetInTarget":{offset},"sourceNumPhysicalRecords":{rows}}}]',
    }


def test_files_that_stay_together_say_where() -> None:
    dv = vector(1)
    files = [removed("a", 3, deletion_vector=dv), removed("b", 2, tags={"x": "y"})]
    made = output(rows_of("b", 2), rows_of("a", 2, dv.unique_id))
    assert tagged(files, [made]) == [place(2, 3), {"x": "y", **place(0, 2)}]


def test_a_commit_that_rewrites_nothing_is_as_it_was() -> None:
    deleted = removed(data_change=True, tags=place(0, 3))
    assert list(with_compaction_tags([deleted], [output(rows_of("a", 3))])) == [deleted]
    both = list(with_compaction_tags([deleted, removed("b")], [output(rows_of("a", 3))]))
    assert both == [deleted, removed("b")]


@pytest.mark.parametrize(
    ("file", "made"),
    [
        (removed(), output(rows_of("b", 3))),
        (removed(), output(rows_of("a", 3, positions_id="s"))),
        (removed(), output(rows_of("a", 2))),
        (removed(), output(rows_of("a", 3, first=1))),
        (removed(), output(rows_of("a", 3), rows_of("a", 3))),
        (removed(), output(rows_of("a", 3), stats='{"numRecords":4}')),
        (removed(), output(rows_of("a", 3), deletion_vector=vector(1))),
        (removed(), output(rows_of("a", 3), data_change=True)),
        (removed(), output(rows_of("a", 3), tags=None)),
        (removed(deletion_vector=vector(1)), output(rows_of("a", 2))),
        (removed(), output(rows_of("a", 2, vector(1).unique_id))),
        (removed(rows=None), output(rows_of("a", 3))),
        (removed(stats="{"), output(rows_of("a", 3))),
    ],
    ids=[
        "of another", "sorted", "not all", "from the middle", "twice", "miscounted",
        "with a vector", "changed", "unrecorded", "deleted since", "back since", "uncounted",
        "unreadable",
    ],
)  # fmt: skip
def test_what_the_tags_cannot_say_they_do_not(file: Remove, made: Add) -> None:
    assert list(with_compaction_tags([file], [made])) == [file]
    stale = msgspec.structs.replace(file, tags={"kept": "1", **place(0, 9)})
    assert tagged([stale], [made]) == [{"kept": "1"}]
    stale = msgspec.structs.replace(file, tags=place(0, 9))
    assert tagged([stale], [made]) == [None]


def _read_by_others(file: Remove, gone: BitMap64) -> tuple[str, list[tuple[int, int]]] | None:
    """Where a file's live rows are, by Delta Spark's proposal: pairs of positions in the file and
    in the output. A live row's place is the offset and the number of live rows before it.
    """
    tags = file.tags or {}
    if INFO not in tags:
        return None
    [entry], [path] = json.loads(tags[INFO] or ""), json.loads(tags[INTO] or "")
    every, offset = entry["sourceNumPhysicalRecords"], entry["rowOffsetInTarget"]
    live = every - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    places = []
    for position in range(every):
        if position in gone:
            continue
        rank = position - sum(1 for one in gone if one < position)
        assert 0 <= rank < live
        places.append((position, offset + rank))
    return path, places


REWRITES = st.one_of(
    st.tuples(st.just("compact"), st.integers(1, 4)),
    st.tuples(st.just("sort"), st.integers(1, 4), st.lists(st.integers(0, 3), min_size=1)),
)
DELETES = st.lists(st.integers(0, 8), max_size=4)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(REWRITES, DELETES, DELETES)
def test_others_find_every_row_where_it_is(
    how: tuple[Any, ...], before: list[int], beside: list[int]
) -> None:
    """Also when rows were deleted while the rewrite ran, which it carries to its outputs."""
    history = History(Level.SNAPSHOT)
    committed(history, *map(delete, before))
    rewrite = history.begin("rewrite")
    getattr(rewrite, how[0])(*how[1:], **({"recorded": True} if how[0] == "compact" else {}))
    committed(history, *map(delete, beside))
    files = {add.key: add for add in history.newest.files.adds()}
    assert history.commit(rewrite)
    winner = history.winners[-1]
    for file in with_compaction_tags(winner.removed, winner.added):
        gone = history.disk.deleted(file)
        found = _read_by_others(file, gone)
        if found is None:
            continue
        assert file.key in files
        path, places = found
        theirs, ours = history.disk.files[path], history.disk.files[file.path]
        assert [theirs[to] for _, to in places] == [ours[start] for start, _ in places]


def test_an_undisturbed_compaction_says_it_of_every_file() -> None:
    history = History(Level.SNAPSHOT)
    committed(history, delete(1), delete(7))
    rewrite: Transaction = history.begin("rewrite")
    rewrite.compact(2, recorded=True)
    assert history.commit(rewrite)
    winner = history.winners[-1]
    assert all(file.tags for file in with_compaction_tags(winner.removed, winner.added))
