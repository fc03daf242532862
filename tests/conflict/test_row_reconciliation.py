"""Two transactions in one file: whose rows go, and where they went that a rewrite moved."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from pyroaring import BitMap64

from tests.conflict.histories import History, Transaction, between, value_is
from tests.conflict.racing import Do, committed, compact, compacted, copy, delete, ids, race, update
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.footprint import Read
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.conflict.row_reconciliation import reconcile_rows
from txlake.errors import CorruptTable
from txlake.log.predicates import bind, parse_predicate
from txlake.protocol.actions import Add, DeletionVector


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("second", [update(2), delete(2)], ids=["update", "delete"])
@pytest.mark.parametrize("first", [update(1), delete(1)], ids=["update", "delete"])
def test_disjoint_rows_of_one_file_both_go(level: Level, first: Do, second: Do) -> None:
    history = History(level)
    assert race(history, first, second, delete(4)) == [True, True, True]
    assert 4 not in ids(history)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (update(1, 2), update(2, 3)),
        (delete(1, 2), delete(2)),
        (delete(0, 8), delete(2)),
        (delete(2), delete(0, 8)),
    ],
    ids=["updates", "deletes", "all and one", "one and all"],
)
def test_one_row_goes_once(level: Level, first: Do, second: Do) -> None:
    history = History(level)
    assert race(history, first, second) == [True, False]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("before", [(), (delete(1), delete(7))], ids=["whole", "with vectors"])
@pytest.mark.parametrize("times", [1, 2])
def test_deletions_follow_the_rows_that_a_compaction_moved(
    level: Level, before: tuple[Do, ...], times: int
) -> None:
    history = History(level)
    committed(history, *before)
    left = set(ids(history))
    late = [history.begin(f"late {number}") for number in range(2)]
    delete(3, 6)(late[0])
    update(8)(late[1])
    committed(history, *[compact(2)] * times)
    assert all(history.commit(one) for one in late)
    history.check_rows()
    history.check_order()
    assert set(ids(history)) == left - {3, 4, 5, 6}


@pytest.mark.parametrize("before", [(), (delete(1), delete(7))], ids=["whole", "with vectors"])
def test_a_compaction_takes_the_deletions_over(before: tuple[Do, ...]) -> None:
    history = History(Level.SERIALIZABLE)
    committed(history, *before)
    left = set(ids(history))
    assert race(history, delete(2, 3), update(8), compact(2)) == [True, True, True]
    assert set(ids(history)) == left - {2, 3}
    [merged] = [file for file in history.newest.files.adds() if file.tags]
    assert merged.deletion_vector is not None
    assert merged.deletion_vector.cardinality == 3
    assert '"tightBounds":false' in (merged.stats or "")


def test_a_compaction_gives_up_what_others_rewrote() -> None:
    history = History(Level.SERIALIZABLE)
    committed(history, lambda one: one.insert([(20, 0)]), lambda one: one.insert([(21, 0)]))
    assert race(history, compact(2), compact(4)) == [True, True]
    assert len(history.winners) == 3  # nothing was left of the second: no version


def test_a_compaction_outlives_sources_that_others_removed_whole() -> None:
    history = History(Level.SERIALIZABLE)
    committed(history, *[lambda one, row=row: one.insert([(row, 0)]) for row in (20, 21)])
    late, writer = history.begin("late"), history.begin("writer")
    compact(4)(late)
    delete(2)(writer)
    committed(history, delete(20), update(21), delete(3), update(21 + 10))
    assert history.commit(late)
    history.check_rows()
    assert history.commit(writer)  # it follows its row
    history.check_rows()
    [merged] = [file for file in history.newest.files.adds() if file.tags]
    assert merged.deletion_vector is not None
    assert merged.deletion_vector.cardinality == 4
    assert len(history.newest.files) == 2


@pytest.mark.parametrize("others", [[delete(0, 8)], [delete(0, 4), delete(5, 8)]])
def test_of_a_compaction_whose_rows_are_all_gone_nothing_is_left(others: list[Do]) -> None:
    history = History(Level.SNAPSHOT)
    compaction = history.begin("compaction")
    compact(2)(compaction)
    committed(history, *others)
    assert history.commit(compaction)
    history.check_rows()
    assert len(history.winners) == len(others)


def test_a_source_that_lost_all_rows_and_then_itself() -> None:
    history = History(Level.SNAPSHOT)
    compaction, emptied = history.begin("compaction"), history.begin("emptied")
    compact(1)(compaction)
    [file] = [one for one in history.newest.files.adds() if one.path == "f1"]
    rows = history.disk.files[file.path]
    emptied.removed += rows
    marked = history.disk.marked(file, BitMap64(range(len(rows))))
    emptied.stage(file.tombstone(timestamp_ms=1), marked)
    assert history.commit(emptied)
    gone = history.begin("gone")
    gone.stage(marked.tombstone(timestamp_ms=1))
    assert history.commit(gone)
    assert history.commit(compaction)
    history.check_rows()
    assert len(history.winners) == 2


@pytest.mark.parametrize("do", [delete(3), update(3)], ids=["delete", "update"])
def test_rows_in_an_order_that_nobody_knows(do: Do) -> None:
    assert race(History(Level.SNAPSHOT), compact(2, recorded=False), do) == [True, False]
    assert race(History(Level.SNAPSHOT), do, compact(2, recorded=False)) == [True, False]


@pytest.mark.parametrize("level", [Level.WRITE_SERIALIZABLE, Level.SERIALIZABLE])
def test_rows_that_were_read_are_watched_after_they_moved(level: Level) -> None:
    history = History(level, probing=False)
    reader = history.begin("reader")
    copy(3, 4)(reader)
    committed(history, compact(2), delete(3))
    assert not history.commit(reader)


def test_a_row_moved_into_a_condition() -> None:
    history = History(Level.WRITE_SERIALIZABLE)
    move: Do = lambda one: one.change(between(7, 7), lambda row: (3, row[1]))  # noqa: E731
    assert race(history, move, delete(2, 4)) == [True, False]


def test_a_row_that_did_not_match_may_go() -> None:
    history = History(Level.SERIALIZABLE, probing=False)
    assert race(history, delete(0), lambda one: one.change(value_is(1), None)) == [True, True]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("granularity", [Granularity.ROW, Granularity.FILE])
def test_when_rows_are_the_grain(granularity: Granularity, enabled: bool) -> None:
    history = History(Level.SNAPSHOT, granularity=granularity, enabled=enabled)
    by_row = enabled and granularity is Granularity.ROW
    assert race(history, delete(1), delete(2)) == [True, by_row]


def test_a_file_that_is_listed_again_took_no_rows() -> None:
    history = History(Level.SNAPSHOT)
    ours = history.begin("ours")
    delete(1)(ours)
    [file] = [one for one in history.newest.files.adds() if one.path == "f1"]
    again = msgspec.structs.replace(file, base_row_id=7)
    listed = ConcurrentCommit(version=1, removed=(file.tombstone(timestamp_ms=1),), added=(again,))
    assert not reconcile_rows(ours.footprint(), listed, history.disk).carried


def test_without_vectors_files_are_the_grain() -> None:
    history = History(Level.SNAPSHOT)
    one, other = history.begin("one"), history.begin("other")
    delete(1)(one)
    delete(2)(other)
    assert history.commit(one)
    [winner] = history.winners
    assert reconcile_rows(other.footprint(), winner, history.disk).carried
    footprint = other.footprint()

    class Broken:
        def of(self, vector: DeletionVector) -> BitMap64:
            raise CorruptTable("gone")

        def of_id(self, vector_id: str) -> BitMap64:
            raise CorruptTable("gone")

    met = reconcile_rows(footprint, winner, Broken())
    assert not met.carried
    assert [overlap.positions for overlap in met.overlaps] == [None]


def test_files_that_both_remove_whole_are_told_by_their_live_rows() -> None:
    history = History(Level.SNAPSHOT)
    committed(history, delete(1))
    one, other = history.begin("one"), history.begin("other")
    delete(0, 5)(one)
    delete(0, 5)(other)
    assert history.commit(one)
    [overlap] = reconcile_rows(other.footprint(), history.winners[-1], history.disk).overlaps
    assert overlap.positions == BitMap64([0, 2, 3, 4, 5])
    footprint = other.footprint()
    uncounted = replace(
        footprint, removed=tuple(msgspec.structs.replace(f, stats=None) for f in footprint.removed)
    )
    [overlap] = reconcile_rows(uncounted, history.winners[-1], history.disk).overlaps
    assert overlap.positions is None


def test_bounds_of_a_file_that_lost_rows_are_loose() -> None:
    history = History(Level.SNAPSHOT)
    one, other = history.begin("one"), history.begin("other")
    delete(1)(one)
    delete(2)(other)
    assert history.commit(one)
    tight = replace(other.staged, added={k: _tight(v) for k, v in other.staged.added.items()})
    other.staged = tight
    [winner] = history.winners
    winner = replace(winner, added=tuple(map(_tight, winner.added)))
    [file] = reconcile_rows(other.footprint(), winner, history.disk).footprint.added
    assert '"tightBounds":false' in (file.stats or "")


def _tight(file: Add) -> Add:
    return msgspec.structs.replace(file, stats='{"numRecords":6}')


def test_a_compaction_that_never_saw_rows_which_came_back() -> None:
    history = History(Level.SNAPSHOT)
    committed(history, delete(3))
    compaction, back = history.begin("compaction"), history.begin("back")
    compact(2)(compaction)
    back.restore(between(0, 9))
    assert history.commit(back)
    assert history.commit(compaction)
    history.check_rows()
    assert len(history.winners) == 2  # nothing was left of it


@pytest.mark.parametrize("probing", [True, False])
@pytest.mark.parametrize(("now", "commits"), [((1, 2), True), ((2, 4), False)])
def test_a_larger_vector_may_bring_rows_back(
    now: tuple[int, int], commits: bool, probing: bool
) -> None:
    history = History(Level.SERIALIZABLE, probing=probing)
    committed(history, delete(1))
    ours, other = history.begin("ours"), history.begin("other")
    ours.insert([(30, 0)])
    read = bind(parse_predicate("id = 1"), ours.base.schema)
    ours.reads.append(Read(predicate=read, text="id = 1", files=False))
    [file] = [one for one in history.newest.files.adds() if one.deletion_vector]
    other.stage(file.tombstone(timestamp_ms=1), history.disk.marked(file, BitMap64(now)))
    assert history.commit(other)
    assert history.commit(ours) is commits


@pytest.mark.parametrize("ours", [delete(0, 1), update(0, 1), copy(0, 1)])
def test_rows_that_came_back_should_have_been_read(ours: Do) -> None:
    history = History(Level.WRITE_SERIALIZABLE)
    committed(history, delete(1))

    def swap(one: Transaction) -> None:  # the vector grows
        one.restore(between(1, 1))
        delete(3, 4)(one)

    assert race(history, swap, ours) == [True, False]


@pytest.mark.parametrize("other", [delete(3), compact(2)], ids=["delete", "compaction"])
def test_rows_brought_back_are_not_lost_to_anothers_vector(other: Do) -> None:
    history = History(Level.SNAPSHOT)
    committed(history, delete(1))
    assert race(history, other, lambda one: one.restore(between(1, 1))) == [True, False]


@pytest.mark.parametrize("files", [1, 2])
def test_outputs_that_share_a_source_are_given_up_together(files: int) -> None:
    history = History(Level.SNAPSHOT)
    committed(history, lambda one: one.insert([(20, 0)]))
    compaction = compacted(history, (0, 8, [(0, 0, 6), (1, 0, 2)]), (8, 10, [(1, 2, 1), (2, 0, 1)]))
    assert race_before(history, compaction, compact(files))
    assert len(history.winners) == 2


def test_an_output_is_not_given_up_while_rows_of_it_may_be_in_another() -> None:
    history = History(Level.SNAPSHOT)
    compaction = compacted(history, (0, 8, [(0, 0, 6), (1, 0, 2)]), (8, 9, []))
    assert not race_before(history, compaction, compact(1))


def race_before(history: History, last: Transaction, first: Do) -> bool:
    """Another transaction commits first; whether the last one still does."""
    one = history.begin("first")
    first(one)
    assert history.commit(one)
    outcome = history.commit(last)
    history.check_rows()
    return outcome


@pytest.mark.parametrize("who", ["winner", "loser"])
def test_a_record_that_knows_another_vector(who: str) -> None:
    history = History(Level.SNAPSHOT)
    compaction = history.begin("compaction")
    compact(2)(compaction)
    [(key, output)] = compaction.staged.added.items()
    files = [file.path for file in history.newest.files.adds()]
    vector = history.disk.marked(output, BitMap64([3])).key[1]
    lying = msgspec.structs.replace(
        output,
        tags={"txlake.sources": f'[["{files[0]}","{vector}",0,5],["{files[1]}",null,0,3]]'},
        stats='{"numRecords":8}',
    )
    compaction.staged = replace(compaction.staged, added={key: lying})
    if who == "loser":
        assert race_before(history, compaction, delete(3))
        assert len(history.winners) == 1
    else:
        late = history.begin("late")
        delete(3)(late)
        assert history.commit(compaction)
        assert not history.commit(late)


@pytest.mark.parametrize(
    "lie", ["rows", "order", "vector", "two vectors", "file", "count", "changed"]
)
def test_a_record_that_does_not_fit_is_none(lie: str) -> None:
    history = History(Level.SNAPSHOT)
    late = history.begin("late")
    delete(3)(late)
    compaction = history.begin("compaction")
    compact(2)(compaction)
    [(key, output)] = compaction.staged.added.items()
    files = [file.path for file in history.newest.files.adds()]
    empty = history.disk.marked(output, BitMap64()).key[1]
    told = f'[["{files[0]}",null,0,6],["{files[1]}",null,0,3]]'
    text = {
        "rows": f'[["{files[0]}",null,0,5],["{files[1]}",null,0,4]]',
        "order": f'[["{files[0]}",null,1,6],["{files[1]}",null,0,3]]',
        "vector": f'[["{files[0]}","x",0,6],["{files[1]}",null,0,3]]',
        "two vectors": (
            f'[["{files[0]}",null,0,3],["{files[0]}","{empty}",3,3],["{files[1]}",null,0,3]]'
        ),
        "file": f'[["elsewhere",null,0,6],["{files[1]}",null,0,3]]',
    }.get(lie, told)
    lying = msgspec.structs.replace(
        output,
        tags={"txlake.sources": text},
        stats='{"numRecords":8}' if lie == "count" else output.stats,
        data_change=lie == "changed",
    )
    compaction.staged = replace(compaction.staged, added={key: lying})
    assert history.commit(compaction)
    assert not history.commit(late)
