"""What is left of a transaction that met others in its files: its own, no more and no less."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.conflict.histories import History
from tests.conflict.racing import Do, committed, compact, compacted, delete, race
from txlake.conflict.levels import Level
from txlake.conflict.row_reconciliation import RowReconciler, reconcile_rows


def test_a_source_given_up_with_another_is_not_removed_again() -> None:
    history = History(Level.SNAPSHOT)
    compaction, other = history.begin("compaction"), history.begin("other")
    compact(2)(compaction)
    compact(1)(other)
    delete(7)(other)
    assert history.commit(other)
    assert history.commit(compaction)
    history.check_rows()
    assert len(history.winners) == 1


def test_a_file_of_which_both_together_take_all_rows_goes() -> None:
    history = History(Level.SERIALIZABLE)
    assert race(history, delete(0, 2), delete(3, 5)) == [True, True]
    assert [file.path for file in history.newest.files.adds()] == ["f2"]


def test_only_the_output_that_holds_a_row_is_touched() -> None:
    for first in (False, True):
        history = History(Level.SNAPSHOT)
        parts = (0, 3, [(0, 0, 3)]), (3, 9, [(0, 3, 3), (1, 0, 3)])
        compaction, one = compacted(history, *parts), history.begin("one")
        outputs = compaction.footprint().added
        delete(1)(one)
        assert all(map(history.commit, (one, compaction) if first else (compaction, one)))
        history.check_rows()
        touched = [file.path for file in history.newest.files.adds() if file.deletion_vector]
        assert touched == [output.path for output in outputs[:1]]


@pytest.mark.parametrize(
    "others",
    [
        [delete(0, 4), compact(1)],
        [delete(1), compact(2)],
        [delete(0, 4), delete(5, 8)],
    ],
    ids=["moved on", "given up", "emptied"],
)
def test_vectors_of_files_that_are_not_listed_any_more_are_not_written(others: list[Do]) -> None:
    """That is what History asks of every commit."""
    for late in (delete(6), compact(2)):
        history = History(Level.SNAPSHOT)
        ours = history.begin("ours")
        late(ours)
        committed(history, *others)
        history.commit(ours)
        history.check_rows()


def test_a_deletion_follows_its_row_after_the_file_met_anothers() -> None:
    history = History(Level.SNAPSHOT)
    ours = history.begin("ours")
    delete(1)(ours)
    committed(history, delete(2), compact(2))
    assert history.commit(ours)
    history.check_rows()


def test_files_that_only_one_touches_stay_as_they_are() -> None:
    history = History(Level.SNAPSHOT)
    one, other = history.begin("one"), history.begin("other")
    delete(1)(one)
    delete(7)(other)
    assert history.commit(one)
    ours = other.footprint()
    met = reconcile_rows(ours, history.winners[0], history.disk)
    assert met.footprint is ours
    assert met.carried == frozenset()


def test_a_file_without_statistics_has_none_after_it_lost_rows() -> None:
    history = History(Level.SNAPSHOT)
    one, other = history.begin("one"), history.begin("other")
    delete(1)(one)
    delete(2)(other)
    assert history.commit(one)
    [winner] = history.winners
    bare = tuple(msgspec.structs.replace(file, stats=None) for file in winner.added)
    met = reconcile_rows(other.footprint(), replace(winner, added=bare), history.disk)
    assert met.carried
    assert [file.stats for file in met.footprint.added] == [None]


def test_one_meeting_serves_all_rules_and_no_other_transaction() -> None:
    history = History(Level.SNAPSHOT)
    one, other = history.begin("one"), history.begin("other")
    delete(1)(one)
    delete(2)(other)
    assert history.commit(one)
    [winner], ours, row_reconciler = history.winners, other.footprint(), RowReconciler()
    met = row_reconciler.of(ours, winner, history.disk)
    assert row_reconciler.of(ours, winner, history.disk) is met
    elsewhere = history.begin("elsewhere", behind=1)
    delete(7)(elsewhere)
    assert not row_reconciler.of(elsewhere.footprint(), winner, history.disk).carried
