"""Where another engine's OPTIMIZE put the rows, as far as its tombstones prove it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, consumes, multiple, rule

from tests.conflict import test_histories
from tests.conflict.cases import add, gone, vector
from tests.conflict.histories import History, Transaction
from tests.conflict.racing import committed, compact_elsewhere, delete, ids, race, update
from txlake.commit.merge_actions import StagedChanges
from txlake.conflict import positions
from txlake.conflict.compaction_tags import compaction_tags, recorded_sources
from txlake.conflict.levels import Level
from txlake.protocol.actions import Add, Remove
from txlake.protocol.sources import Source

INTO, INFO = "compactedInto", "compactionInfo"
ROWS = {"a": 3, "b": 2}


def output(**changes: Any) -> Add:
    """The output of both files; of `a` two rows are left."""
    made = msgspec.structs.replace(add("out", data_change=False), stats='{"numRecords":4}')
    return msgspec.structs.replace(made, **changes)


def source(path: str, offset: int | str, rows: int | str, **changes: Any) -> Remove:
    """A tombstone that says where the rows of its file went."""
    dv = vector(1) if path == "a" else None
    tags = {
        INTO: '["out"]',
        INFO: f'[{{"rowOffsetInTarget":{offset},"sourceNumPhysicalRecords":{rows}}}]',
    }
    stats = f'{{"numRecords":{ROWS[path]}}}'
    made = gone(add(path, dv=dv, data_change=False))
    return msgspec.structs.replace(
        made, **{"tags": tags, "stats": stats, "data_change": False, **changes}
    )


A, B = source("a", 2, 3), source("b", 0, 2)
PLACE = '{"rowOffsetInTarget":0,"sourceNumPhysicalRecords":2}'


def tagged(file: Remove, **tags: str | None) -> Remove:
    """The tombstone with other tags; None takes one away."""
    every = {**(file.tags or {}), **tags}
    return msgspec.structs.replace(file, tags={key: text for key, text in every.items() if text})


def test_files_whose_rows_make_up_the_output_are_its_sources() -> None:
    sources = (
        Source(path="b", vector_id=None, first=0, rows=2),
        Source(path="a", vector_id=vector(1).unique_id, first=0, rows=2),
    )
    assert recorded_sources([A, B], [output()]) == {"out": sources}
    uncounted = [msgspec.structs.replace(one, stats=None) for one in (A, B)]
    assert recorded_sources(uncounted, [output()]) == {"out": sources}
    unknown = '[{"rowOffsetInTarget":2,"sourceNumPhysicalRecords":3,"sourceDeletionVector":null}]'
    assert recorded_sources([tagged(A, **{INFO: unknown}), B], [output()]) == {"out": sources}


def test_paths_are_compared_as_the_logs_are() -> None:
    files = [tagged(one, **{INTO: '["/t/out"]'}) for one in (A, B)]
    assert recorded_sources(files, [output(path="file:/t/out")]).keys() == {"file:///t/out"}
    assert recorded_sources(files, [output(path="t/out")]) == {}


def test_a_file_without_rows_takes_no_place() -> None:
    empty = source("b", 0, 0, stats=None)
    whole = source("a", 0, 3)
    made = output(stats='{"numRecords":2}')
    for files in ([empty, whole], [whole, empty]):
        assert [one.rows for one in recorded_sources(files, [made])["out"]] == [0, 2]


ODD: dict[str, Callable[[], tuple[list[Remove], Add]]] = {
    "no paths": lambda: ([A, tagged(B, **{INTO: None})], output()),
    "no places": lambda: ([A, tagged(B, **{INFO: None})], output()),
    "no JSON": lambda: ([A, tagged(B, **{INFO: "[{"})], output()),
    "nested": lambda: ([A, tagged(B, **{INFO: "[" * 100_000})], output()),
    "no list": lambda: ([A, tagged(B, **{INTO: '"out"'})], output()),
    "no path": lambda: ([A, tagged(B, **{INTO: "[1]"})], output()),
    "no object": lambda: ([A, tagged(B, **{INFO: "[1]"})], output()),
    "two paths": lambda: ([A, tagged(B, **{INTO: '["out","more"]'})], output()),
    "two places": lambda: ([A, tagged(B, **{INFO: f"[{PLACE},{{}}]"})], output()),
    "elsewhere": lambda: ([A, tagged(B, **{INTO: '["more"]'})], output()),
    "offset missing": lambda: (
        [A, tagged(B, **{INFO: '[{"sourceNumPhysicalRecords":2}]'})], output(),
    ),
    "rows missing": lambda: ([A, tagged(B, **{INFO: '[{"rowOffsetInTarget":0}]'})], output()),
    "more": lambda: (
        [A, tagged(B, **{INFO: f"[{PLACE[:-1]},\"sourceRowOffset\":1}}]"})], output(),
    ),
    "text": lambda: ([A, source("b", '"0"', 2)], output()),
    "a flag": lambda: ([A, source("b", "false", 2)], output()),
    "a fraction": lambda: ([A, source("b", 0, "2.0")], output()),
    "before the first": lambda: ([A, source("b", -2, 2)], output()),
    "other count": lambda: ([A, source("b", 0, 2, stats='{"numRecords":3}')], output()),
    "unreadable count": lambda: ([A, source("b", 0, 2, stats="{")], output()),
    "a gap": lambda: ([A, source("b", 1, 2)], output(stats='{"numRecords":5}')),
    "an overlap": lambda: ([source("a", 1, 3), B], output()),
    "another vector": lambda: ([source("a", 2, 3, deletion_vector=None), B], output()),
    "too many deleted": lambda: (
        [source("a", 2, 3, deletion_vector=vector(4)), B],
        output(stats='{"numRecords":1}'),
    ),
    "one missing": lambda: ([B], output()),
    "a row beyond": lambda: ([A, B], output(stats='{"numRecords":5}')),
    "uncounted output": lambda: ([A, B], output(stats=None)),
    "an output of changes": lambda: ([A, B], output(data_change=True)),
    "an output with a vector": lambda: ([A, B], output(deletion_vector=vector(1))),
    "deleted rows": lambda: ([A, source("b", 0, 2, data_change=True)], output()),
    "listed twice": lambda: (
        [A, B, msgspec.structs.replace(B, deletion_vector=vector(1))], output(),
    ),
    "itself": lambda: ([A, B, gone(add("out"), data_change=False)], output()),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_the_numbers_do_not_confirm_says_nothing(
    odd: Callable[[], tuple[list[Remove], Add]],
) -> None:
    removed, made = odd()
    assert recorded_sources(removed, [made]) == {}


def test_outputs_are_judged_each_for_itself() -> None:
    other = msgspec.structs.replace(add("other", data_change=False), stats='{"numRecords":9}')
    lost = msgspec.structs.replace(gone(add("c")), data_change=False)
    found = recorded_sources(
        [A, B, tagged(lost, **compaction_tags("other", offset=0, rows=8))], [output(), other]
    )
    assert found.keys() == {"out"}


def test_the_form_is_the_published_one() -> None:
    assert compaction_tags("a%20b/ä.parquet", offset=100, rows=90) == {
        "compactedInto": '["a%20b/ä.parquet"]',
        "compactionInfo": '[{"rowOffsetInTarget":100,"sourceNumPhysicalRecords":90}]',
    }


# What that means for the deletions of others


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("before", [(), (delete(1), delete(7))], ids=["whole", "with vectors"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("outputs", [1, 2])
def test_deletions_follow_the_rows(
    level: Level, before: tuple[Any, ...], order: tuple[int, ...], outputs: int
) -> None:
    history = History(level)
    committed(history, *before)
    left = set(ids(history))
    late = [history.begin(f"late {number}") for number in range(3)]
    delete(3, 6)(late[0])
    update(8)(late[1])
    delete(5, 8)(late[2])
    work = compact_elsewhere(2, *order, outputs=outputs)
    committed(history, work, work)
    assert [history.commit(one) for one in late] == [True, True, False]
    history.check_rows()
    history.check_order()
    assert set(ids(history)) == left - {3, 4, 5, 6}


def test_a_file_that_was_deleted_whole_is_deleted_in_the_output() -> None:
    history = History(Level.SERIALIZABLE)
    assert race(history, compact_elsewhere(2, 1, 0), delete(0, 5)) == [True, True]
    assert ids(history) == [6, 7, 8]


def compacted(history: History) -> tuple[Transaction, list[Remove], Add]:
    """Another engine's compaction of all files to one: the transaction and what it stages."""
    theirs = history.begin("theirs")
    theirs.compact_elsewhere(2, (0, 1), 1)
    [made] = theirs.staged.added_files
    return theirs, list(theirs.staged.removed_files), made


def restage(one: Transaction, *actions: Remove | Add) -> None:
    """Let a transaction stage these actions and no others."""
    one.staged = StagedChanges()
    one.stage(*actions)


def late_deletion(history: History, row: int) -> Transaction:
    """A transaction that deletes a row, and commits later."""
    late = history.begin("late")
    delete(row)(late)
    return late


def test_a_tombstone_without_statistics_is_counted_as_the_file_was_read() -> None:
    history = History(Level.SNAPSHOT)
    late = late_deletion(history, 4)
    theirs, files, made = compacted(history)
    restage(theirs, *[msgspec.structs.replace(one, stats=None) for one in files], made)
    assert history.commit(theirs)
    assert all(one.stats is None for one in history.winners[-1].removed)
    assert history.commit(late)
    history.check_rows()
    assert 4 not in ids(history)


def test_a_wrong_count_of_the_file_as_it_was_read_is_a_conflict() -> None:
    """The tags agree with the output, and not with the file that the transaction read."""
    history = History(Level.SNAPSHOT)
    late = late_deletion(history, 4)
    theirs, files, made = compacted(history)
    wrong = []
    for one in files:
        tags = {key: (text or "").replace(":6}", ":7}") for key, text in (one.tags or {}).items()}
        wrong.append(msgspec.structs.replace(one, stats=None, tags=tags))
    stats = (made.stats or "").replace('"numRecords": 9', '"numRecords": 10')
    restage(theirs, *wrong, msgspec.structs.replace(made, stats=stats))
    assert recorded_sources(theirs.staged.removed_files, theirs.staged.added_files)
    assert history.commit(theirs)
    assert not history.commit(late)
    history.check_rows()


def test_rows_that_the_rewrite_brought_back_are_a_conflict() -> None:
    """It took the file without its deletion vector."""
    history = History(Level.SNAPSHOT)
    committed(history, delete(1))
    late = late_deletion(history, 3)
    theirs, files, made = compacted(history)
    [held] = [one for one in files if one.deletion_vector is not None]
    every = [row for one in files for row in history.disk.files[one.path]]
    wrong = msgspec.structs.replace(history.disk.write(every), path=made.path, data_change=False)
    assert held.path in history.disk.files
    restage(theirs, *files, wrong)
    assert history.commit(theirs)
    assert not history.commit(late)


def test_our_own_tag_comes_first() -> None:
    """One that doesn't fit says that the rows are elsewhere, whatever the tombstones say."""
    history = History(Level.SNAPSHOT)
    late = late_deletion(history, 4)
    theirs, files, made = compacted(history)
    own = {"txlake.sources": '[["f1",null,0,5]]'}
    restage(theirs, *files, msgspec.structs.replace(made, tags=own))
    assert history.commit(theirs)
    assert not history.commit(late)
    history.check_rows()


# Any interleaving


def _machine(level: Level, *, by_tombstones: bool) -> type[Any]:
    """Transactions as in `test_histories`, and beside them another engine's rewrites."""
    histories: Any = test_histories.machine(level, restoring=True, by_tombstones=by_tombstones)

    class TaggedHistories(histories):  # type: ignore[misc]
        elsewhere: Bundle[Transaction] = Bundle("elsewhere")

        @rule(
            target=elsewhere,
            files=st.integers(1, 4),
            order=st.permutations(range(5)),
            outputs=st.integers(1, 3),
        )
        def compact_elsewhere(self, files: int, order: list[int], outputs: int) -> Any:
            one = self.history.begin("elsewhere")
            one.compact_elsewhere(files, order, outputs)
            return one if one.staged.actions else multiple()

        @rule(one=consumes(elsewhere))
        def commit_elsewhere(self, one: Transaction) -> None:
            if len(self.history.committed) < test_histories.COMMITTED_MAX:
                self.history.commit(one)

    return TaggedHistories


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize("by_tombstones", [False, True], ids=["theirs", "theirs and ours"])
@pytest.mark.parametrize("level", Level)
def test_what_commits_is_what_the_level_promises(level: Level, by_tombstones: bool) -> None:
    test_histories.run(_machine(level, by_tombstones=by_tombstones), 100)


def test_a_wrong_order_loses_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories notice it."""

    def turned(removed: Any, added: Any) -> Any:
        found = recorded_sources(removed, added)
        return {path: sources[::-1] for path, sources in found.items()}

    monkeypatch.setattr(positions, "recorded_sources", turned)
    with pytest.raises(AssertionError):
        test_histories.run(_machine(Level.SNAPSHOT, by_tombstones=False), 500)
