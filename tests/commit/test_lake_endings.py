"""How a commit over many tables ends: staged, unknown, unpublished, and what follows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commit.lake_of import (
    BOTH,
    LakeOf,
    lake_of,
    paths,
    when,
    write_both,
)
from tests.commit.log_of import add
from tests.support.ledger import nothing
from txlake.conflict.levels import Level
from txlake.errors import (
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
)
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.settings import RetrySettings, Settings


def staged(lake: LakeOf, name: str) -> list[str]:
    return [path for path in lake.fake(name).files if path.startswith(STAGED_FOLDER)]


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_a_catalog_that_is_away_committed_nothing() -> None:
    lake = lake_of()
    tx = write_both(lake)
    when(lake, "ratify", failing(Unavailable("the catalog is away")))
    with pytest.raises(Unavailable, match="the catalog is away"):
        tx.commit()
    assert [paths(lake, name) for name in BOTH] == [[], []]


def test_an_unknown_outcome_is_told_and_keeps_what_was_staged() -> None:
    lake = lake_of(settings=Settings(inline_commit_bytes_max=0))
    tx = write_both(lake)
    when(lake, "ratify done", failing(OutcomeUnknown("nobody knows")))
    with pytest.raises(OutcomeUnknown, match="nobody knows"):
        tx.commit()
    assert [len(staged(lake, name)) for name in BOTH] == [1, 1]
    # It was ratified after all: whoever comes next sees it.
    assert [paths(lake, name) for name in BOTH] == [["a1"], ["b1"]]
    assert [staged(lake, name) for name in BOTH] == [[], []]


def test_large_commits_stand_in_files_until_they_are_published() -> None:
    lake = lake_of(settings=Settings(inline_commit_bytes_max=0))
    seen: list[int] = []
    when(lake, "ratify", lambda: seen.extend(len(staged(lake, name)) for name in BOTH))
    write_both(lake).commit()
    assert seen == [1, 1]
    for name in BOTH:
        commit = lake.ledger.tables[name].commits[1]
        assert commit.content is None
        assert str(commit.staged).startswith("00000000000000000001.")
        assert staged(lake, name) == []
        assert paths(lake, name) == [f"{name}1"]


@pytest.mark.parametrize("error", [Unavailable("away"), InvalidRequest("killed")])
def test_what_was_staged_in_vain_is_deleted(error: Exception) -> None:
    lake = lake_of(settings=Settings(inline_commit_bytes_max=0))
    tx = write_both(lake)
    when(lake, "ratify", lambda: lake.append("a", add("x")), failing(error))
    with pytest.raises(type(error)):
        tx.commit()
    assert [staged(lake, name) for name in BOTH] == [[], []]


def test_a_stage_that_fails_deletes_those_before_it() -> None:
    lake = lake_of(settings=Settings(inline_commit_bytes_max=0))
    tx = write_both(lake)
    put = lake.fake("b").put

    def full(path: str, data: bytes) -> None:
        if path.startswith(STAGED_FOLDER):
            raise InvalidRequest("disk full")
        put(path, data)

    lake.fake("b").put = full  # type: ignore[method-assign]
    with pytest.raises(InvalidRequest, match="disk full"):
        tx.commit()
    assert staged(lake, "a") == []
    assert lake.ledger.tables["a"].head == 0


def test_what_cant_be_published_is_committed_and_published_by_the_next() -> None:
    lake = lake_of()
    tx = write_both(lake)
    lake.fake("a").failing.add(commit_path(1))
    outcome = tx.commit()
    assert outcome.occupied is None
    assert {name: one.version for name, one in outcome.tables.items()} == {"a": 1, "b": 1}
    assert lake.plain("a").latest().version == 0
    assert lake.plain("b").latest().version == 1
    lake.fake("a").failing.clear()
    lake.append("a", add("a2"))
    assert lake.plain("a").latest().version == 2
    assert paths(lake, "a") == ["a1", "a2"]


def test_versions_are_published_in_their_order() -> None:
    lake = lake_of()
    tx = write_both(lake)
    lake.fake("a").failing.add(commit_path(1))
    lake.append("a", add("x"))
    lake.fake("a").failing.clear()
    lake.fake("a").requests.clear()
    assert tx.commit().tables["a"].version == 2
    puts = [path for kind, path in lake.fake("a").requests if kind == "put_if_absent"]
    assert puts[:2] == [commit_path(1), commit_path(2)]
    assert lake.plain("a").latest().version == 2


def test_the_own_commit_is_the_newest_without_reading_it() -> None:
    lake = lake_of()
    logs = {name: lake.open(name) for name in BOTH}
    tx = lake.begin(logs=logs)
    tx.table("a").stage([add("a1")], operation="WRITE")
    tx.commit()
    lake.fake("a").requests.clear()
    assert [file.path for file in logs["a"].latest().files.adds()] == ["a1"]
    assert lake.fake("a").requests == [("head", commit_path(2))]


def test_threads_that_share_a_log_commit_in_turn() -> None:
    lake = lake_of(settings=Settings(retry=RetrySettings(queue_ms_max=0)))
    logs = {name: lake.open(name) for name in BOTH}
    free: dict[tuple[str, str], bool] = {}

    def looking(moment: str) -> None:
        for name in BOTH:
            with logs[name].turn() as is_mine:
                free[moment, name] = is_mine

    tx = lake.begin(Level.SERIALIZABLE, logs=logs)
    tx.table("b").plain_read()
    tx.table("a").stage([add("a1")], operation="WRITE")
    lake.ledger.hook = looking
    tx.commit()
    assert free["ratify", "a"] is False
    assert free["record_publication_soon", "a"] is False
    assert free["ratify", "b"] is True  # a table that is only read keeps nobody waiting
    with logs["a"].turn() as is_mine:
        assert is_mine


def test_what_a_thread_of_this_process_commits_is_left_to_it_to_publish() -> None:
    lake = lake_of(settings=Settings(retry=RetrySettings(queue_ms_max=0)))
    log = lake.open("a")
    log.latest()
    lake.fake("a").failing.add(commit_path(1))
    lake.append("a", add("x"))
    lake.fake("a").failing.clear()
    with log.turn():
        assert [file.path for file in log.latest().files.adds()] == ["x"]
        assert commit_path(1) not in lake.fake("a").files
    log.latest()
    assert commit_path(1) in lake.fake("a").files


def test_a_ledger_that_is_away_after_the_ratification_fails_nothing() -> None:
    lake = lake_of(settings=Settings(inline_commit_bytes_max=0))
    tx = write_both(lake)
    when(lake, "record_publication", failing(Unavailable("away")))
    assert tx.commit().sequence == 2
    assert lake.ledger.tables["a"].published == 0
    assert paths(lake, "a") == ["a1"]
    assert lake.ledger.tables["a"].published == 1


def test_all_tables_of_a_transaction_are_noted_as_published_at_once() -> None:
    lake = lake_of()
    del lake.ledger.requests[:]
    write_both(lake).commit()
    assert lake.ledger.requests.count("record_publication_soon") == 1
    assert [lake.ledger.tables[name].published for name in BOTH] == [1, 1]


def test_a_table_that_cannot_be_published_keeps_no_other_from_it() -> None:
    lake = lake_of()
    tx = write_both(lake)
    lake.fake("a").failing.add(commit_path(1))
    assert tx.commit().sequence == 2
    assert [lake.ledger.tables[name].published for name in BOTH] == [0, 1]
    assert commit_path(1) in lake.fake("b").files


def test_a_checkpoint_comes_after_the_publication_alone() -> None:
    lake = LakeOf().create("a", configuration={"delta.checkpointInterval": "1"})
    checkpoint = "_delta_log/{:020d}.checkpoint.parquet".format
    lake.append("a", add("a1"))
    assert checkpoint(1) in lake.fake("a").files
    lake.fake("a").failing.add(commit_path(2))
    lake.append("a", add("a2"))
    assert checkpoint(2) not in lake.fake("a").files
    assert "_delta_log/00000000000000000002.crc" not in lake.fake("a").files


def test_a_publication_that_cannot_be_noted_is_followed_by_its_checkpoint() -> None:
    staging = Settings(inline_commit_bytes_max=0)  # what is staged is noted at once
    lake = LakeOf(settings=staging).create("a", configuration={"delta.checkpointInterval": "1"})
    when(lake, "record_publication", failing(Unavailable("away")))
    lake.append("a", add("a1"))
    assert lake.ledger.tables["a"].published == 0
    assert "_delta_log/00000000000000000001.checkpoint.parquet" in lake.fake("a").files


def test_a_commit_that_another_published_is_followed_by_its_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake = LakeOf().create("a", configuration={"delta.checkpointInterval": "1"})
    files, held = lake.fake("a").files, {}
    tx = lake.begin()
    tx.table("a").stage([add("a1")], operation="WRITE")

    def hook(moment: str) -> None:
        if moment == "ratify done":
            held[commit_path(0)] = files.pop(commit_path(0))  # as if it weren't published yet
        elif moment == "head":
            lake.ledger.hook = nothing
            files.update(held)
            lake.open("a").latest()  # whoever opens the table publishes

    lake.ledger.hook = hook
    assert tx.commit().sequence == 2
    assert "not published yet" not in caplog.text
    assert "_delta_log/00000000000000000001.checkpoint.parquet" in lake.fake("a").files
    assert "_delta_log/00000000000000000001.crc" in lake.fake("a").files


def test_what_was_dropped_meanwhile_is_left_to_the_catalog() -> None:
    lake = lake_of()
    tx = write_both(lake)

    def drop() -> None:
        lake.ledger.tables["a"].is_dropped = True
        del lake.fake("a").files[commit_path(0)]  # its folder is cleared away

    when(lake, "ratify done", drop)
    assert tx.commit().sequence == 2
    assert commit_path(1) not in lake.fake("a").files
    assert "_delta_log/00000000000000000001.crc" not in lake.fake("a").files


def test_whose_version_another_took_is_looked_at_again_by_its_process() -> None:
    lake = lake_of()
    logs = {name: lake.open(name) for name in BOTH}
    tx = lake.begin(logs=logs)
    for name in BOTH:
        tx.table(name).stage([add(f"{name}1")], operation="WRITE")

    def intrude() -> None:
        lake.fake("a").files[commit_path(1)] = (b"another's", 1)

    when(lake, "ratify done", intrude)
    assert tx.commit().occupied is not None
    with pytest.raises(CorruptTable, match=r"1\.json holds another commit"):
        logs["a"].at_sequence(lake.ledger.sequence())
    assert logs["b"].newest_known == 1


def test_what_is_only_unpublished_stays_known() -> None:
    lake = lake_of()
    logs = {name: lake.open(name) for name in BOTH}
    tx = lake.begin(logs=logs)
    tx.table("a").stage([add("a1")], operation="WRITE")
    lake.fake("a").failing.add(commit_path(1))
    tx.commit()
    assert logs["a"].newest_known == 1


def test_nothing_is_committed_after_a_version_whose_file_was_removed() -> None:
    lake = lake_of()
    tx = write_both(lake)
    del lake.fake("a").files[commit_path(0)]
    with pytest.raises(CorruptTable, match=r"published version 0, .*0\.json isn't there"):
        tx.commit()
    assert [lake.ledger.tables[name].head for name in BOTH] == [0, 0]
