"""What VACUUM and log clean-up keep for the branches of a path table, and remove of ended ones."""

from __future__ import annotations

import logging

import pytest

from tests.commit.branching import (
    FIRST,
    SECOND,
    append_on,
    branch_of,
    commit_on,
    files,
    folder_of,
    log_on,
)
from tests.commit.lake_of import LakeOf
from tests.commit.log_of import DAY, LogOf, add, remove
from txlake.commit.branch_fence import change_registry, close, find_end, with_created
from txlake.commit.branch_store import BranchStore
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.log_cleanup import clean_log
from txlake.commit.table_branches import branches_in, oldest_needed, open_branch_logs, remove_ended
from txlake.commit.vacuum import plan_vacuum, vacuum
from txlake.ports import OpenTransactions
from txlake.protocol.actions import CommitInfo, Protocol
from txlake.protocol.branching import FEATURE, TableBranch
from txlake.protocol.file_names import commit_path

_PROTOCOL = Protocol(
    min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata", FEATURE)
)


class Table(LogOf):
    """A path table with a branch that began with version 0, as the registry says."""

    def __init__(self) -> None:
        super().__init__()
        self.create(add("kept"), add("gone"), protocol=_PROTOCOL)
        self.branch = TableBranch(id=FIRST, name="b", base=0, created_version=1)
        log = self.open()
        change_registry(
            log,
            "CREATE BRANCH",
            self.branch,
            lambda registry, _: registry.with_created(self.branch),
        )
        for path in ("kept", "gone", "of-branch", "moved", "stray"):
            self.store.put(path, b"rows")

    @property
    def line(self) -> BranchStore:
        return branch_of(self, 0)

    def drop(self) -> None:
        """DROP BRANCH."""
        log = log_on(self.line, self.clock)
        assert close(log, find_end(log), self.branch) is not None
        change_registry(
            self.open(),
            "DROP BRANCH",
            self.branch,
            lambda registry, _: registry.with_discarded(self.branch),
        )

    @property
    def of_branch(self) -> list[str]:
        return [path for path in self.paths if path.startswith("_delta_log/_branches/")]


def test_vacuum_keeps_what_an_open_branch_reads_or_has_read() -> None:
    table = Table()
    commit_on(table.open(), [remove("gone", at_ms=table.clock.time_ms)])
    log = log_on(table.line, table.clock)
    append_on(log, "of-branch", "moved")
    commit_on(log, [remove("moved", at_ms=table.clock.time_ms)])
    table.clock.time_ms += 30 * DAY
    assert plan_vacuum(table.open()).paths == ("stray",)
    vacuum(table.open())
    for path in ("kept", "gone", "of-branch", "moved"):
        assert path in table.paths
    table.drop()
    table.clock.time_ms += 30 * DAY
    assert plan_vacuum(table.open()).paths == ("gone", "moved", "of-branch")


def test_vacuum_keeps_what_open_transactions_may_read_beside_a_branch() -> None:
    table = Table()
    table.drop()
    append_on(table.open(), "stray")
    table.clock.time_ms += 30 * DAY
    others = OpenTransactions(begin_ms=table.clock.time_ms)
    commit_on(table.open(), [remove("stray", at_ms=table.clock.time_ms - 20 * DAY)])
    newer = TableBranch(id=SECOND, name="newer", base=0, created_version=0)
    change_registry(
        table.open(),
        "CREATE BRANCH",
        newer,
        lambda registry, previous: with_created(registry, newer, previous),
    )
    table.clock.time_ms += 8 * DAY
    assert "stray" in plan_vacuum(table.open()).paths
    assert "stray" not in plan_vacuum(table.open(), others_open=lambda: others).paths


def test_a_branch_that_is_created_during_vacuum_keeps_its_files() -> None:
    table = Table()
    lines: list[str] = []

    def look() -> list[object]:
        lines.append("looked")
        if len(lines) == 2:
            append_on(log_on(table.line, table.clock), "stray")
        return []

    table.clock.time_ms += 30 * DAY
    vacuum(table.open(), other_lines=look)  # type: ignore[arg-type]
    assert "stray" in table.paths


def test_main_keeps_the_versions_since_an_open_branch_began() -> None:
    table = Table()
    log = table.open()
    for number in range(2, 8):
        append_on(log, f"f{number}")
        write_checkpoint(log)
        table.clock.time_ms += 10 * DAY
    table.clock.time_ms += 100 * DAY
    assert oldest_needed(table.open()) == 0
    assert clean_log(table.open(), retention_ms=30 * DAY) == []
    branch = log_on(table.line, table.clock)
    for number in range(1, 5):
        append_on(branch, f"own{number}")
    write_checkpoint(branch)
    table.clock.time_ms += 100 * DAY
    assert oldest_needed(branch) == 0
    assert clean_log(branch, retention_ms=30 * DAY) == []
    assert len(files(log_on(table.line, table.clock).latest())) == 6
    table.drop()
    assert oldest_needed(table.open()) is None
    assert commit_path(0) in clean_log(table.open(), retention_ms=30 * DAY)


def test_of_an_ended_branch_the_closing_stays() -> None:
    table = Table()
    log = log_on(table.line, table.clock)
    append_on(log, "of-branch")
    write_checkpoint(log)
    remove_ended(table.open(), table.clock.time_ms + 1)
    assert len(table.of_branch) == 4
    table.drop()
    remove_ended(table.open(), table.clock.time_ms)
    assert len(table.of_branch) == 5
    table.clock.time_ms += 8 * DAY
    vacuum(table.open())
    assert table.of_branch == [f"{folder_of(FIRST)}/{2:020d}.json"]
    remove_ended(table.open(), table.clock.time_ms)
    assert len(table.of_branch) == 1


def test_a_branch_that_the_registry_forgot_is_known_by_its_closing() -> None:
    table = Table()
    unknown = "cccccccc-0000-4000-8000-000000000000"
    log = log_on(BranchStore(table.store, unknown, 0), table.clock)
    append_on(log, "of-branch")
    append_on(log, "moved")
    table.clock.time_ms += DAY
    before = table.of_branch
    remove_ended(table.open(), table.clock.time_ms)
    assert table.of_branch == before
    other = TableBranch(id=unknown, name="x", base=0, created_version=1)
    assert close(log, find_end(log), other) is not None
    table.clock.time_ms += DAY
    remove_ended(table.open(), table.clock.time_ms)
    assert table.of_branch == [f"{folder_of(unknown)}/{3:020d}.json"]


def test_what_cant_be_removed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    append_on(log_on(table.line, table.clock), "of-branch")
    table.drop()
    table.clock.time_ms += DAY
    table.store.failing = {f"{folder_of(FIRST)}/{1:020d}.json"}
    with caplog.at_level(logging.WARNING):
        remove_ended(table.open(), table.clock.time_ms)
    assert "is left" in caplog.text


def test_a_lakes_branches_stay() -> None:
    table = Table()
    assert [log.name for log in open_branch_logs(table.open())] == ["t@branch:b"]
    assert branches_in(table.open().latest()).find("B") == table.branch
    lake = LakeOf().create("a")
    log = lake.open("a")
    assert open_branch_logs(log) == []
    line = log_on(BranchStore(log.store, SECOND, 0), lake.clock)
    for version in (1, 2):
        line.write_commit(version, [CommitInfo({"operation": "WRITE"}), add(f"own{version}")])
    lake.clock.time_ms += DAY
    remove_ended(log, lake.clock.time_ms)
    assert len(files(line.latest())) == 2


def test_of_a_branch_that_another_engine_dropped_the_newest_version_stays() -> None:
    table = Table()
    log = log_on(table.line, table.clock)
    append_on(log, "of-branch")
    append_on(log, "moved")
    change_registry(
        table.open(),
        "DROP BRANCH",
        table.branch,
        lambda registry, _: registry.with_discarded(table.branch),
    )
    table.clock.time_ms += DAY
    remove_ended(table.open(), table.clock.time_ms)
    assert table.of_branch == [f"{folder_of(FIRST)}/{2:020d}.json"]


def test_a_folder_without_versions_stays(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.store.put(f"{folder_of(SECOND)}/_last_checkpoint", b"{}")
    table.clock.time_ms += DAY
    before = table.of_branch
    with caplog.at_level(logging.WARNING):
        remove_ended(table.open(), table.clock.time_ms)
    assert table.of_branch == before
    assert not caplog.records
