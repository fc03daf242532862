"""Rewrites that sort, in any interleaving: deletions find the rows that went everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, consumes, multiple, rule

from tests.conflict import test_histories
from tests.conflict.histories import History, Transaction
from tests.conflict.racing import committed, compact, delete, ids, race, update
from txlake.conflict.levels import Level
from txlake.protocol.sources import SOURCES_TAG, parse_sources, sources_text

SPREADS = st.lists(st.integers(0, 5), min_size=1, max_size=7)


def _machine(level: Level, *, probing: bool) -> type[Any]:
    """Transactions as in `test_histories`, and beside them rewrites that sort."""
    histories: Any = test_histories.machine(level, probing=probing, restoring=True)

    class SortedHistories(histories):  # type: ignore[misc]
        sorts: Bundle[Transaction] = Bundle("sorts")

        @rule(target=sorts, files=st.integers(1, 4), spread=SPREADS)
        def sort(self, files: int, spread: list[int]) -> Any:
            one = self.history.begin("sort")
            one.sort(files, spread)
            return one if one.staged.actions else multiple()

        @rule(one=consumes(sorts))
        def commit_sorted(self, one: Transaction) -> None:
            if len(self.history.committed) < test_histories.COMMITTED_MAX:
                self.history.commit(one)

    return SortedHistories


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("probing", [True, False], ids=["rows", "statistics"])
@pytest.mark.parametrize("level", Level)
def test_what_commits_is_what_the_level_promises(level: Level, probing: bool) -> None:
    test_histories.run(_machine(level, probing=probing), 150)


def _sort(number: int, *spread: int) -> Any:
    return lambda one: one.sort(number, spread)


SORTS = pytest.mark.parametrize(
    "spread", [(0,), (0, 1), (0, 2, 4), (5, 0, 3, 1, 4, 2), (2, 2, 0, 1)], ids=str
)


@SORTS
def test_deletions_follow_the_rows_that_were_sorted(spread: tuple[int, ...]) -> None:
    history = History(Level.SNAPSHOT)
    committed(history, delete(1))
    late = [history.begin("late") for _ in range(2)]
    for one, low in zip(late, (2, 6), strict=True):
        delete(low, low + 1)(one)
    committed(history, _sort(2, *spread), _sort(3, *reversed(spread)), compact(2))
    assert all(map(history.commit, late))
    history.check_rows()
    assert ids(history) == [0, 4, 5, 8]


@SORTS
def test_a_sort_takes_the_deletions_over(spread: tuple[int, ...]) -> None:
    history = History(Level.SNAPSHOT)
    committed(history, delete(7))
    assert race(history, delete(2, 3), update(8), delete(0), _sort(2, *spread)) == [True] * 4
    assert ids(history) == [1, 4, 5, 6, 8]


@SORTS
def test_a_sort_outlives_sources_that_others_removed_whole(spread: tuple[int, ...]) -> None:
    history = History(Level.SNAPSHOT)
    assert race(history, delete(0, 5), _sort(2, *spread)) == [True, True]
    assert ids(history) == [6, 7, 8]


def test_a_sort_gives_up_what_others_rewrote() -> None:
    history = History(Level.SNAPSHOT)
    assert race(history, _sort(2, 0, 2), _sort(2, 2, 0), compact(2)) == [True] * 3
    assert len(list(history.newest.files.adds())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda sources: [_more(sources[0], 1), _more(sources[1], -1)],
        lambda sources: sources[:1],
        lambda sources: [sources[1], sources[1]],
        lambda sources: [_in_a_row(sources[0]), *sources[1:]],
        lambda sources: [_named(sources[0], "nowhere"), *sources[1:]],
    ],
    ids=["other number", "one missing", "one twice", "mixed", "unreadable"],
)
def test_a_record_that_does_not_add_up_says_nothing(damage: Any) -> None:
    """File by file then: the writer aborts, and no row is lost."""
    history = History(Level.SNAPSHOT)
    late = history.begin("late")
    delete(1)(late)
    sort = history.begin("sort")
    sort.sort(1, (0, 1))
    [output] = sort.staged.added_files
    sources = list(parse_sources(str((output.tags or {})[SOURCES_TAG])))
    assert len(sources) == 2
    tags = {SOURCES_TAG: sources_text(damage(sources))}
    sort.stage(output.tombstone(timestamp_ms=1, data_change=False))
    sort.stage(msgspec.structs.replace(output, tags=tags))
    assert history.commit(sort)
    assert not history.commit(late)
    history.check_rows()


def _more(source: Any, rows: int) -> Any:
    return replace(source, rows=source.rows + rows)


def _in_a_row(source: Any) -> Any:
    return replace(source, positions_id=None)


def _named(source: Any, positions_id: str) -> Any:
    return replace(source, positions_id=positions_id)
