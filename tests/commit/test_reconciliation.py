"""What a recovery sees of a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.commit.log_of import LogOf, add, metadata
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.commit_info import PRODUCT
from txlake.commit.reconciliation import (
    ASIDE_FOLDER,
    RECOVER,
    differs_from_catalog,
    newest_in_log,
    newest_readable,
    reconcile_log,
    set_aside_after,
)
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, Unavailable
from txlake.ports import LoggedVersion, PutOutcome, StoredObject, TableCommit
from txlake.protocol.actions import CommitInfo, Protocol, encode_actions
from txlake.protocol.file_names import commit_path
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.storage.objects import BucketStore
from txlake.system import System


def still() -> None:
    """Nobody else recovers the lake."""


class Stale:
    """A store whose listings don't know a file yet."""

    def __init__(self, inner: BucketStore, hidden: str) -> None:
        self._inner = inner
        self._hidden = hidden

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        found = self._inner.list(prefix, start_after, before)
        return (one for one in found if one.path != self._hidden)


def test_a_version_that_isn_t_listed_yet_is_there() -> None:
    inner = open_store("memory://stale/t")
    for version in range(3):
        inner.put(commit_path(version), b"{}")
    for hidden in (1, 2):
        store = Stale(inner, commit_path(hidden))  # type: ignore[arg-type]
        assert newest_in_log(store, 1) == 2  # type: ignore[arg-type]
        assert not differs_from_catalog(store, 2, 2, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("last", [1, 2])
def test_a_version_that_isn_t_listed_yet_isn_t_judged(last: int) -> None:
    """It isn't damaged because a listing doesn't know it: it was acknowledged, maybe."""
    inner = open_store(f"memory://unlisted{last}/t")
    for version in range(last + 1):
        inner.put(commit_path(version), b"{}")
    log = TableLog(Stale(inner, commit_path(1)), System(), Settings())  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match=r"1\.json is there, and the store doesn't list it"):
        reconcile_log(log, 0, 0, (), still)
    assert [inner.get(commit_path(one)) for one in range(last + 1)] == [b"{}"] * (last + 1)


def test_nothing_is_judged_by_a_version_that_can_t_be_read() -> None:
    inner = open_store("memory://unread/t")
    for version in range(2):
        inner.put(commit_path(version), b"{nonsense")
    with pytest.raises(CorruptTable, match="version 0, up to which the catalog knows the table"):
        reconcile_log(TableLog(inner, System(), Settings()), 0, 0, (), still)
    assert inner.get(commit_path(1)) == b"{nonsense"


# --- what becomes of a log, step by step ----------------------------------------------------------

OURS, THEIRS = f"{PRODUCT}/0.1", "another"
UNKNOWN = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=("x",), writer_features=("x",)
)
TIMED = {"delta.enableInCommitTimestamps": "true"}
CARRIES = Protocol(
    min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",)
)


def info(by: str = OURS, **more: object) -> CommitInfo:
    return CommitInfo({"operation": "WRITE", "engineInfo": by, "timestamp": 1, **more})


def content(name: str, by: str = OURS) -> bytes:
    return encode_actions([info(by), add(name)])


def ratified(version: int, name: str, **more: Any) -> TableCommit:
    given = {"content": content(name), "operation": "WRITE", **more}
    return TableCommit(table_id="id", version=version, **given)


def aside(table: LogOf) -> list[str]:
    return [path for path in table.paths if path.startswith(ASIDE_FOLDER)]


def files(log: TableLog) -> list[str]:
    return [file.path for file in log.latest().files.adds()]


def test_of_a_log_with_a_gap_the_newest_version_is_the_newest_there() -> None:
    table = LogOf().create()
    for version in (1, 3):
        table.commit(version)
    assert newest_in_log(table.store, 1) == 3


def test_only_other_bytes_at_a_ratified_version_are_at_odds_with_it() -> None:
    table = LogOf().create()
    one = ratified(1, "x")
    assert not differs_from_catalog(table.store, 1, 0, [one])
    table.store.put(commit_path(1), content("x"))
    assert not differs_from_catalog(table.store, 1, 0, [one])
    table.store.put(commit_path(1), content("y"))
    assert differs_from_catalog(table.store, 1, 0, [one])


def test_what_is_ratified_is_published_and_what_was_read_before_forgotten() -> None:
    table = LogOf().create()
    for version in (1, 2):
        table.store.put(commit_path(version), content(f"theirs{version}", THEIRS))
    table.store.files.pop(commit_path(1))
    table.store.put(commit_path(1), content("x", THEIRS))
    log = table.open()
    assert files(log) == ["x", "theirs2"]
    settled = reconcile_log(log, 3, 0, [ratified(one, f"our{one}") for one in (1, 2, 3)], still)
    assert (settled.kept, settled.found) == (3, ())
    assert files(log) == ["our1", "our2", "our3"]


def test_what_is_published_already_stays_as_it_is() -> None:
    """A recovery was cut short after the newer one of two versions."""
    table = LogOf().create()
    table.store.put(commit_path(1), content("theirs", THEIRS))
    table.store.put(commit_path(2), content("our2"))
    table.store.requests.clear()
    reconcile_log(table.open(), 2, 0, [ratified(1, "our1"), ratified(2, "our2")], still)
    assert [path.startswith(f"{ASIDE_FOLDER}/{1:020}") for path in aside(table)] == [True]
    assert ("put", commit_path(2)) not in table.store.requests


def test_nothing_is_overwritten_by_whom_another_recovery_overtook() -> None:
    table = LogOf().create()
    table.store.put(commit_path(1), content("theirs", THEIRS))
    asked: list[None] = []

    def overtaken() -> None:
        asked.append(None)
        if len(asked) > 1:  # what is derived from versions is gone by then
            raise Unavailable("another recovery")

    with pytest.raises(Unavailable, match="another recovery"):
        reconcile_log(table.open(), 1, 0, [ratified(1, "our1")], overtaken)
    assert table.store.get(commit_path(1)) == content("theirs", THEIRS)


def test_ratified_commits_before_the_one_that_gives_way_stay() -> None:
    table = LogOf().create()
    table.store.put(commit_path(1), content("our1"))
    table.store.put(commit_path(2), content("newer"))
    log = table.open()
    settled = reconcile_log(log, 2, 0, [ratified(1, "our1"), ratified(2, "our2")], still)
    assert settled.kept == 1
    assert [one.version for one in settled.found] == [2]
    assert [one for one in settled.summary if "version 1" in one] == []
    assert len(aside(table)) == 1
    assert files(log) == ["our1", "newer"]


@pytest.mark.parametrize("staged", [None, "nowhere.json"])
def test_what_was_ratified_upon_versions_that_are_gone_is_told(staged: str | None) -> None:
    table = LogOf().create()
    pending = ratified(4, "our4", staged=staged, **({"content": None} if staged else {}))
    settled = reconcile_log(table.open(), 4, 3, [pending], still)
    assert settled.kept == 0
    given_up, gone = settled.summary
    assert "version 4 as this catalog ratified it (WRITE) was never published" in given_up
    assert ("its staged file is gone" in given_up) is (staged is not None)
    assert "versions 1 to 3: gone with the log's files; the table is at version 0" in gone
    assert len(aside(table)) == (0 if staged else 1)


def test_a_log_that_is_gone_is_nothing_to_settle() -> None:
    with pytest.raises(CorruptTable, match="there is no log"):
        reconcile_log(LogOf().open(), 1, 1, (), still)


def test_nothing_sound_after_the_catalogs_version_is_nothing_to_take_in() -> None:
    table = LogOf().create()
    for version in (1, 2):
        table.store.put(commit_path(version), b"{nonsense")
    checksum = "_delta_log/00000000000000000001.crc"
    table.store.put(checksum, b"{}")
    settled = reconcile_log(table.open(), 0, 0, (), still)
    assert (settled.kept, settled.newest) == (0, 2)
    assert [(one.version, one.operation) for one in settled.found] == [(1, RECOVER), (2, RECOVER)]
    assert [one.partition(" can't")[0] for one in settled.summary] == [
        "t: version 2",
        "t: version 1",
    ]
    assert len(aside(table)) == 2
    assert checksum not in table.paths
    assert (table.open().latest().version, files(table.open())) == (2, [])


def test_a_version_that_holds_nothing_is_the_same_whoever_makes_it_and_when() -> None:
    """A recovery that was cut short, or stood still, takes nothing away when it goes on."""
    table = LogOf().create()
    written: list[tuple[str, bytes]] = []
    put = table.store.put

    def noted(path: str, data: bytes) -> None:
        written.append((path, data))
        put(path, data)

    for version in (1, 2):
        put(commit_path(version), b"{nonsense")
    table.store.put = noted  # type: ignore[method-assign]
    first = reconcile_log(table.open(), 0, 0, (), still)
    put(commit_path(1), b"{nonsense")  # as if the first one had gone no further
    again = reconcile_log(table.open(), 0, 0, (), still)
    assert again.found == first.found
    made = [one for one in written if one[0] in (commit_path(1), commit_path(2))]
    assert len(made) == 3
    assert len(set(made)) == 2
    assert len(aside(table)) == 3
    assert [one.partition(" can't")[0] for one in again.summary] == ["t: version 1"]


def test_versions_are_judged_by_themselves_where_older_ones_are_gone() -> None:
    table = LogOf().create().commit(1)
    write_checkpoint(table.open())
    table.remove_file(commit_path(0))
    settled = reconcile_log(table.open(), 0, 0, (), still)
    assert settled.found == (LoggedVersion(1, None, "WRITE"),)


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_taken_in_outlives_a_power_cut(is_lost: bool) -> None:
    """Who wrote it may have died between that and the folder's sync."""
    table = LogOf().create().commit(1).commit(2)
    asked: list[str] = []

    def unanswered(path: str, data: bytes) -> PutOutcome:
        asked.append(path)
        return PutOutcome.UNKNOWN

    table.store.put_if_absent = unanswered  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"2\.json can't be made durable"):
        set_aside_after(table.open(), 2, still) if is_lost else reconcile_log(
            table.open(), 0, 0, (), still
        )
    assert asked == [commit_path(2)]


def test_a_version_that_says_nothing_of_itself_is_taken_in() -> None:
    table = LogOf().create()
    table.store.put(commit_path(1), encode_actions([add("x")]))
    assert reconcile_log(table.open(), 0, 0, (), still).found == (LoggedVersion(1),)


def test_a_version_that_needs_a_feature_is_for_who_has_it() -> None:
    table = LogOf().create().commit(1, UNKNOWN)
    assert [one.version for one in reconcile_log(table.open(), 0, 0, (), still).found] == [1]


@pytest.mark.parametrize("second", [{}, {"inCommitTimestamp": 7}])
def test_a_version_whose_time_is_no_later_one_is_set_aside(second: dict[str, Any]) -> None:
    table = LogOf()
    table.commit(0, info(inCommitTimestamp=5), CARRIES, metadata(TIMED))
    table.commit(1, info(inCommitTimestamp=7), add("x")).commit(2, info(**second), add("y"))
    log = table.open()
    assert files(log) == ["x", "y"]
    found = reconcile_log(log, 0, 0, (), still).found
    assert [(one.version, one.operation) for one in found] == [(1, "WRITE"), (2, RECOVER)]
    assert files(log) == ["x"]
    assert log.snapshot(2).in_commit_timestamp_ms == 8


@pytest.mark.parametrize(
    ("known", "times", "sound"),
    [
        (1, [3], 1),  # not later than the version that the catalog knows
        (1, [3, 9], 1),
        (1, [8, 9], 3),
        (0, [8, 4], 2),
    ],
)
def test_times_go_on_from_those_before(known: int, times: list[int], sound: int) -> None:
    table = LogOf()
    table.commit(0, info(inCommitTimestamp=5), CARRIES, metadata(TIMED))
    table.commit(1, info(inCommitTimestamp=7), add("x"))
    for version, time in enumerate(times, 2):
        table.commit(version, info(inCommitTimestamp=time), add(f"y{version}"))
    found = reconcile_log(table.open(), known, known, (), still).found
    is_kept = [one.version for one in found if one.operation != RECOVER]
    assert is_kept == [*range(known + 1, sound + 1)]
    assert newest_readable(table.open()) == 1 + len(times)


def test_times_are_judged_by_themselves_where_older_commits_are_gone() -> None:
    table = LogOf()
    table.commit(0, info(inCommitTimestamp=5), CARRIES, metadata(TIMED))
    write_checkpoint(table.open())
    table.remove_file(commit_path(0))
    table.commit(1, info(inCommitTimestamp=7), add("x"))
    found = reconcile_log(table.open(), 0, 0, (), still).found
    assert [(one.version, one.operation) for one in found] == [(1, "WRITE")]


def test_a_time_that_goes_back_ends_a_log_whose_catalog_is_lost() -> None:
    """Though the version before it carries none."""
    table = LogOf()
    table.commit(0, info(inCommitTimestamp=5), CARRIES, metadata(TIMED))
    table.commit(1, info(), add("x")).commit(2, info(inCommitTimestamp=1), add("y"))
    assert newest_readable(table.open()) == 0


# --- a log whose catalog is lost ------------------------------------------------------------------


def test_what_was_read_of_versions_that_are_emptied_is_forgotten() -> None:
    table = LogOf()
    table.commit(0, info(inCommitTimestamp=5), CARRIES, metadata(TIMED))
    table.commit(1, info(inCommitTimestamp=7), add("x")).commit(2, info(), add("y"))
    log = table.open()
    assert files(log) == ["x", "y"]
    settled = set_aside_after(log, 1, still)
    assert (settled.newest, [one.operation for one in settled.found]) == (2, [RECOVER])
    assert files(log) == ["x"]


def test_a_checkpoint_beyond_all_commits_is_what_was_left_of_a_table() -> None:
    table = LogOf().create().commit(1).commit(2)
    write_checkpoint(table.open())
    assert newest_readable(table.open()) == 2
    table.remove_file(commit_path(2))
    assert newest_readable(table.open()) is None
    assert newest_readable(LogOf().open()) is None


def test_a_version_that_isn_t_listed_yet_isn_t_taken_for_damage() -> None:
    table = LogOf().create().commit(1)
    log = TableLog(Stale(table.store, commit_path(1)), table.clock, Settings())  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match=r"1\.json is there, and the store doesn't list it"):
        newest_readable(log)


def test_a_first_version_that_is_none_leaves_nothing() -> None:
    for data in (b"{nonsense", content("x")):
        table = LogOf()
        table.store.put(commit_path(0), data)
        assert newest_readable(table.open()) is None
