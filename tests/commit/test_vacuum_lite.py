"""VACUUM LITE: what the log alone shows to be deletable, without a listing of the table."""

from __future__ import annotations

import json
import logging

import pytest

from tests.commit.lake_of import LakeOf
from tests.commit.log_of import DAY, HOUR, START, VECTORS, LogOf, add, remove, vector
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.expired_files import expired_files, last_vacuum, note_read
from txlake.commit.table_log import TableLog
from txlake.commit.vacuum import VacuumPlan, plan_vacuum, vacuum
from txlake.errors import Unavailable
from txlake.ports import OpenTransactions
from txlake.protocol.actions import Cdc
from txlake.protocol.deletion_vectors import relative_file_name, relative_vector
from txlake.protocol.file_names import commit_path
from txlake.protocol.last_vacuum import LAST_VACUUM_PATH, LastVacuum, write_last_vacuum

_UUID = "6f3d0c1e-0f4b-4f0a-9c39-0d6d6f7f4f10"


def table_of(days: int = 12) -> LogOf:
    """A file a day: version n adds `fn` and removes the one before; it ends `days` after START."""
    table = LogOf().create(add("f0"))
    table.clock.time_ms = START
    table.store.put(commit_path(0), table.store.files[commit_path(0)][0])
    for day in range(1, days + 1):
        now_ms = START + day * DAY
        table.commit(day, add(f"f{day}"), remove(f"f{day - 1}", now_ms), after_ms=DAY)
    for day in range(days + 1):
        table.store.files[f"f{day}"] = (b"12345", START + day * DAY)
    table.clock.time_ms += HOUR
    return table


def line_with(*paths: str) -> TableLog:
    """The table's log on another branch, with these files."""
    lake = LakeOf()
    lake.create("a")
    lake.append("a", *map(add, paths))
    return lake.open("a")


def run(table: LogOf, **options: object) -> VacuumPlan:
    table.store.requests.clear()
    return vacuum(table.open(), lite=True, **options)  # type: ignore[arg-type]


def listings(table: LogOf) -> list[str]:
    return [path for kind, path in table.store.requests if kind == "list"]


def test_the_files_that_left_the_retention_are_deleted_without_a_listing_of_the_table(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = table_of()
    with caplog.at_level(logging.INFO):
        plan = run(table)
    assert "lacks older commits" not in caplog.text
    # Version 5 was committed 7 days and an hour ago.
    assert plan.paths == ("f0", "f1", "f2", "f3", "f4")
    assert (plan.lite, plan.through, plan.size_bytes) == (True, 5, 50)
    assert [path for path in table.paths if path.startswith("f")] == sorted(
        f"f{day}" for day in range(5, 13)
    )
    assert set(listings(table)) == {"_delta_log"}
    assert not table.store.sweeps


def test_the_next_one_reads_on_from_there() -> None:
    table = table_of()
    run(table)
    assert json.loads(table.store.files[LAST_VACUUM_PATH][0]) == {
        "latestCommitVersionOutsideOfRetentionWindow": 5
    }
    table.clock.time_ms += DAY
    plan = run(table)
    assert plan.paths == ("f5",)
    read = [path for kind, path in table.store.requests if kind == "get" and "json" in path]
    assert commit_path(6) in read
    assert last_vacuum(table.open()) == LastVacuum(6)


def test_a_note_of_a_version_that_the_table_lacks_is_passed_over() -> None:
    table = table_of()
    noted = LastVacuum(99, table.clock.time_ms + DAY)
    table.store.files[LAST_VACUUM_PATH] = (write_last_vacuum(noted), START)
    assert run(table).paths == ("f0", "f1", "f2", "f3", "f4")
    assert last_vacuum(table.open()) == LastVacuum(5)


def test_a_full_vacuum_says_how_far_it_came_and_when() -> None:
    table = table_of()
    table.store.files["orphan"] = (b"12345", START)
    begun_ms = table.clock.time_ms
    plan = vacuum(table.open())
    assert plan.paths == ("f0", "f1", "f2", "f3", "f4", "orphan")
    assert not plan.lite
    assert last_vacuum(table.open()) == LastVacuum(5, begun_ms)
    assert run(table).paths == ()
    assert last_vacuum(table.open()) == LastVacuum(5, begun_ms)


def test_a_young_log_has_nothing_that_expired() -> None:
    table = table_of(days=3)
    plan = run(table)
    assert (plan.paths, plan.through) == ((), None)


def test_what_no_commit_names_is_left_to_a_full_vacuum() -> None:
    table = table_of()
    table.store.files["orphan"] = (b"12345", START)
    assert "orphan" not in run(table).paths


def test_a_log_without_the_commits_since_then_is_made_up_for_by_a_listing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = table_of()
    write_checkpoint(table.open())
    table.remove_file(commit_path(0), commit_path(1))
    with caplog.at_level(logging.INFO):
        plan = run(table)
    assert not plan.lite
    assert "" in listings(table)
    assert plan.paths == ("f0", "f1", "f2", "f3", "f4")
    assert "lacks older commits" in caplog.text
    # From here on the log reaches back far enough.
    table.clock.time_ms += DAY
    assert run(table).lite


def test_files_that_are_live_again_stay() -> None:
    table = table_of()
    table.commit(13, add("f2"), after_ms=0)
    plan = run(table)
    assert plan.paths == ("f0", "f1", "f3", "f4")
    # Who removes it again says so in a later commit.
    assert plan.through == 5


def test_files_that_an_open_transaction_reads_are_looked_at_again() -> None:
    table = table_of()
    open_since = START + 3 * DAY + 2 * HOUR
    others = OpenTransactions(ids=frozenset({"a"}), begin_ms=open_since)
    plan = run(table, others_open=lambda: others)
    # The transaction may read what versions 3 to 5 removed.
    assert plan.paths == ("f0", "f1")
    assert plan.through == 2
    assert run(table).paths == ("f2", "f3", "f4")


def test_nothing_is_noted_where_the_first_commit_is_still_needed() -> None:
    table = LogOf().create(remove("f", START))
    table.store.files["f"] = (b"1", START)
    table.clock.time_ms = START + 30 * DAY
    others = OpenTransactions(ids=frozenset({"a"}), begin_ms=START)
    plan = run(table, others_open=lambda: others)
    assert (plan.paths, plan.through) == ((), None)


def test_another_line_keeps_its_files() -> None:
    table, other = table_of(), line_with("f3")
    plan = run(table, other_lines=lambda: [other])
    assert plan.paths == ("f0", "f1", "f2", "f4")
    assert plan.through == 3  # version 4 removed f3


def test_a_line_that_begins_during_the_vacuum_keeps_its_files_for_later() -> None:
    table, other = table_of(), line_with("f3")
    lines = iter([[], [other]])
    run(table, other_lines=lambda: next(lines))
    assert "f3" in table.paths
    assert last_vacuum(table.open()) == LastVacuum()


def test_a_full_vacuum_that_keeps_something_for_others_notes_its_time_alone() -> None:
    table, other = table_of(), line_with("f3")
    begun_ms = table.clock.time_ms
    vacuum(table.open(), other_lines=lambda: [other])
    assert last_vacuum(table.open()) == LastVacuum(None, begun_ms)
    assert run(table).paths == ("f0", "f1", "f2", "f3", "f4")


def test_deletion_vectors_and_change_data_go_with_their_versions() -> None:
    old = relative_vector(_UUID, "", 1, 36, 2)
    table = LogOf().create(add("f", vector=old), protocol=VECTORS)
    change = Cdc(path="_change_data/c", partition_values={}, size=7, data_change=False)
    table.commit(1, remove("f", START + 2_000, old), add("f", vector=vector()), change)
    table.clock.time_ms = START + 30 * DAY
    plan = run(table)
    assert plan.paths == tuple(sorted(["_change_data/c", relative_file_name(_UUID)]))
    assert plan.size_bytes == 7


@pytest.mark.parametrize(
    "path",
    [
        "../f",
        "../../other/f",
        "a/../../f",
        "_delta_log/00000000000000000000.json",
        "_delta_log/_last_checkpoint",
        "_hidden/f",
        ".f",
        "a/_b/f",
        "file:///etc/passwd",
        "/etc/passwd",
    ],
)
def test_a_log_that_names_files_of_others_deletes_none(path: str) -> None:
    table = LogOf(url="memory://test/t").create().commit(1, remove(path, START + 1_000))
    table.clock.time_ms = START + 30 * DAY
    assert plan_vacuum(table.open(), lite=True).paths == ()


def test_a_note_that_cannot_be_written_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    table = table_of()
    put = table.store.put

    def refuse(path: str, data: bytes) -> None:
        if path == LAST_VACUUM_PATH:
            raise Unavailable("not now")
        put(path, data)

    table.store.put = refuse  # type: ignore[method-assign]
    assert len(run(table).paths) == 5
    assert LAST_VACUUM_PATH in caplog.text


def test_a_full_vacuum_beside_an_open_transaction_notes_its_time_alone() -> None:
    table = table_of()
    others = OpenTransactions(ids=frozenset({"a"}), begin_ms=START + 3 * DAY)
    vacuum(table.open(), others_open=lambda: others)
    assert last_vacuum(table.open()).version is None
    assert run(table).paths != ()


def appended(commits: int) -> LogOf:
    """A log of so many commits outside the retention, which remove nothing."""
    table = LogOf().create()
    for version in range(1, commits):
        table.commit(version, add(f"f{version}"))
    table.clock.time_ms = START + 30 * DAY
    return table


def read(table: LogOf) -> LastVacuum:
    """Read what has expired as maintenance does; what is noted then."""
    log = table.open()
    last = last_vacuum(log)
    found = expired_files(log, table.clock.time_ms - 7 * DAY, last=last, listing=log.listing())
    assert found is not None
    note_read(log, last, found)
    return last_vacuum(log)


def test_long_stretches_without_removals_are_read_once() -> None:
    assert read(appended(99)) == LastVacuum()
    table = appended(100)
    assert read(table) == LastVacuum(99)
    table.store.requests.clear()
    assert read(table) == LastVacuum(99)
    assert not [path for kind, path in table.store.requests if path.endswith(".json")]
    for version in range(100, 199):
        table.commit(version, add(f"f{version}"))
    table.clock.time_ms += 30 * DAY
    assert read(table) == LastVacuum(99)
    table.commit(199).clock.time_ms += 30 * DAY
    assert read(table) == LastVacuum(199)


def test_what_waits_to_be_deleted_is_read_again() -> None:
    table = appended(150)
    table.commit(150, remove("f1", START + 1_000), after_ms=-29 * DAY)
    table.clock.time_ms = START + 30 * DAY
    assert read(table) == LastVacuum(149)
    assert vacuum(table.open(), lite=True).paths == ("f1",)
    # A log that has nothing outside its retention has nothing to note.
    assert read(table_of(days=3)) == LastVacuum()
