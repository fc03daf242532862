"""How a branch's log is closed and opened again, request by request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.commit.branching import FIRST, append_on, branch_of, commit_on, files, log_on
from tests.commit.log_of import LogOf, add
from txlake.commit.branch_fence import (
    change_registry,
    close,
    derive_registry,
    find_end,
    open_again,
    reopen,
    with_created,
)
from txlake.commit.read_records import records_in
from txlake.commit.table_branches import branches_in
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.read_set import ReadSet
from txlake.conflict.read_set_codec import decode_read_sets
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown
from txlake.ports import PutOutcome
from txlake.protocol.actions import Action, CommitInfo, Metadata, Protocol
from txlake.protocol.branching import CLOSED, CLOSING, FEATURE, LEVEL, READS, TableBranch

_PROTOCOL = Protocol(
    min_reader_version=1,
    min_writer_version=7,
    writer_features=("domainMetadata", FEATURE, "inCommitTimestamp"),
)
B = TableBranch(id=FIRST, name="b", base=0, created_version=1)


class Fenced(LogOf):
    """A table with a branch that began with version 0."""

    def __init__(self) -> None:
        super().__init__()
        configuration = {"delta.enableInCommitTimestamps": "true"}
        info = CommitInfo({"inCommitTimestamp": self.clock.time_ms, "operation": "CREATE TABLE"})
        self.create(info, add("f0"), protocol=_PROTOCOL, configuration=configuration)
        self.main = self.open()
        change_registry(self.main, "CREATE BRANCH", B, lambda registry, _: registry.with_created(B))
        self.log = self.line()

    def create(self, *actions: Action, **more: object) -> LogOf:
        info, *others = actions
        configuration = more["configuration"]
        assert isinstance(configuration, dict)
        metadata = Metadata(
            id="table-id",
            schema_string='{"type":"struct","fields":[]}',
            configuration=configuration,
            created_time=1,
        )
        return self.commit(0, info, _PROTOCOL, metadata, *others)

    def line(self) -> TableLog:
        """The branch's log as another process opens it."""
        return log_on(branch_of(self, 0), self.clock)

    @property
    def entry(self) -> TableBranch:
        return branches_in(self.open().latest()).require("b")


def test_a_closed_log_is_read_and_not_written() -> None:
    table = Fenced()
    append_on(table.log, "own")
    before = TableTransaction(table.log, table.log.latest())
    before.stage([add("late")], operation="WRITE")
    closed = close(table.log, find_end(table.log), B)
    assert closed is not None
    assert (closed.closing, closed.head.version) == (2, 1)
    for error in (InvalidRequest, InvalidRequest):
        with pytest.raises(error, match="the branch is closed"):
            before.commit()
        before = TableTransaction(table.line(), table.line().latest())
        with pytest.raises(InvalidRequest, match="the branch is closed"):
            before.stage([add("late")], operation="WRITE")
        before = TableTransaction(table.line(), table.line().snapshot(1))
        before.stage([add("late")], operation="WRITE")
    assert files(table.line().latest()) == ["f0", "own"]
    commit = table.log.commit(2)
    assert commit is not None
    assert commit.info is not None
    assert commit.info.values["tags"].keys() == {READS, LEVEL, CLOSING}  # type: ignore[attr-defined]
    found = find_end(table.line())
    assert (found.closing, found.reopened, found.head.version) == (2, 0, 1)
    assert found.is_closed_for(B)
    assert not found.is_closed_for(replace(B, reopened=1))


def test_a_closing_doesnt_take_the_place_of_a_commit() -> None:
    table = Fenced()
    end = find_end(table.log)
    assert end.closing is None
    assert not end.is_closed_for(B)
    append_on(table.line(), "own")
    assert close(table.log, end, B) is None
    assert find_end(table.log).closing is None


def test_an_opening_lets_writers_go_on_and_others_start_again() -> None:
    table = Fenced()
    append_on(table.log, "own")
    end = close(table.log, find_end(table.log), B)
    assert end is not None
    reopen(table.main, table.log, end, B)
    assert table.entry.reopened == 1
    assert table.line().latest().protocol == _PROTOCOL
    append_on(table.line(), "later")
    reopen(table.main, table.log, end, B)
    assert table.entry.reopened == 1
    assert [row["operation"] for row in table.line().history(4)] == [
        "WRITE",
        "OPEN BRANCH",
        "CLOSE BRANCH",
        "WRITE",
    ]
    again = close(table.line(), find_end(table.line()), table.entry)
    assert again is not None
    assert again.reopened == 1
    assert find_end(table.line()).is_closed_for(table.entry)


def test_a_void_closing_is_opened_without_another_commit_on_main() -> None:
    table = Fenced()
    end = close(table.log, find_end(table.log), B)
    assert end is not None
    change_registry(table.main, "REOPEN BRANCH", B, lambda registry, _: registry.with_reopened(B))
    newest = table.main.latest().version
    open_again(table.log, end)
    open_again(table.line(), end)
    assert find_end(table.line()).closing is None
    assert table.open().latest().version == newest


def test_a_branch_that_has_ended_stays_closed() -> None:
    table = Fenced()
    end = close(table.log, find_end(table.log), B)
    assert end is not None
    change_registry(table.main, "DROP BRANCH", B, lambda registry, _: registry.with_discarded(B))
    newest = table.main.latest().version
    reopen(table.main, table.log, end, B)
    assert find_end(table.line()).closing == 1
    assert table.open().latest().version == newest


def test_a_lost_reply_is_asked_for_again() -> None:
    table = Fenced()
    put, replies = table.store.put_if_absent, [True, False]

    def lossy(path: str, data: bytes) -> PutOutcome:
        arrives = replies.pop(0) if replies else None
        if arrives is None:
            return put(path, data)
        if arrives:
            put(path, data)
        return PutOutcome.UNKNOWN

    table.store.put_if_absent = lossy  # type: ignore[method-assign]
    end = close(table.log, find_end(table.log), B)
    assert end is not None
    assert end.closing == 1
    replies[:] = [False] * 5
    with pytest.raises(OutcomeUnknown, match="OPEN BRANCH: the replies to 5 requests"):
        open_again(table.log, end)


def test_what_another_engine_closed_is_named() -> None:
    table = Fenced()
    protocol = replace_features(table.log.latest().protocol)
    for tags in ({}, {CLOSING: "x"}, None, {CLOSING: 1}):
        other = Fenced()
        info = {"operation": "X", "inCommitTimestamp": table.clock.time_ms + 9_999, "tags": tags}
        other.log.write_commit(1, [CommitInfo(info), protocol])
        with pytest.raises(CorruptTable, match=r"has the feature txlakeClosedBranch and no tag"):
            find_end(other.log)


def replace_features(protocol: Protocol) -> Protocol:
    features = (*(protocol.writer_features or ()), CLOSED)
    return Protocol(
        min_reader_version=protocol.min_reader_version,
        min_writer_version=7,
        writer_features=features,
    )


def test_the_registry_follows_the_version_before_and_conflicts_with_nothing() -> None:
    table = Fenced()
    part = TableTransaction(table.main, table.main.latest())
    other = TableBranch(id="x", name="x", base=0, created_version=0)
    part.derive(
        derive_registry(
            lambda registry, previous: with_created(registry, other, previous),
            table="t",
        ),
        operation="CREATE BRANCH",
        parameters={"branch": "x"},
    )
    append_on(table.open(), "f1")
    change_registry(table.open(), "REOPEN BRANCH", B, lambda registry, _: registry.with_reopened(B))
    assert part.has_changes
    assert part.commit().version == 4
    registry = branches_in(table.open().latest())
    assert [(one.name, one.created_version, one.reopened) for one in registry.open] == [
        ("b", 1, 1),
        ("x", 4, 0),
    ]
    [row] = table.open().history(1)
    assert row["operation"] == "CREATE BRANCH"
    assert row["operationParameters"] == {"branch": "x"}


def test_a_change_that_doesnt_fit_is_not_committed() -> None:
    table = Fenced()
    with pytest.raises(InvalidRequest, match="already"):
        change_registry(
            table.main, "CREATE BRANCH", B, lambda registry, _: registry.with_created(B)
        )
    assert table.open().latest().version == 1


def test_the_reads_of_a_commit_are_in_its_tags() -> None:
    table = Fenced()
    part = TableTransaction(table.log, table.log.latest())
    part.read_files(["f0"])
    part.stage([add("own")], operation="WRITE")
    part.commit()
    info = CommitInfo({"operation": "WRITE", "inCommitTimestamp": table.clock.time_ms + 9_999})
    odd = CommitInfo({**info.values, "tags": {READS: "{}", LEVEL: "strict"}})
    bare = CommitInfo({**info.values, "tags": {READS: 1, LEVEL: "serializable"}})
    for version, each in enumerate([info, odd, bare], 2):
        table.log.write_commit(version, [each])
    record, *unknown = records_in(table.line().commits(0))
    assert unknown == [None, None, None]
    assert record is not None
    base = table.log.snapshot(0)
    assert decode_read_sets([record.record], base) == (ReadSet(read_files=frozenset({"f0"})),)
    assert record.level == "write_serializable"
    commit_on(table.main, [add("f1")])
    commit = table.main.commit(2)
    assert commit is not None
    assert commit.info is not None
    assert "tags" not in commit.info.values
