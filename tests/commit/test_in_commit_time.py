"""Nothing follows a commit that lacks the time that it has to carry, by whatever way it is met."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commit.committing import append, begin, info_at
from tests.commit.lake_of import LakeOf
from tests.commit.log_of import PROTOCOL, START, LogOf, add, metadata, remove
from txlake.commit import rebase
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.in_commit_time import SINCE_TIMESTAMP, SINCE_VERSION, with_enablement
from txlake.commit.part_states import PartSummaries
from txlake.commit.rebase import check_reads
from txlake.conflict.levels import Level
from txlake.errors import ConcurrentDeleteDeleteException, CorruptTable
from txlake.protocol.actions import Action, CommitInfo, Protocol, encode_actions
from txlake.protocol.file_names import commit_path

ON = {"delta.enableInCommitTimestamps": "true"}
OFF = {"delta.enableInCommitTimestamps": "false"}
FAR = START + 10**9
CARRIES = Protocol(
    min_reader_version=1,
    min_writer_version=7,
    writer_features=("appendOnly", "inCommitTimestamp", "invariants"),
)
MEND = "Set delta.enableInCommitTimestamps to 'false' and then to 'true' again"


def info(time: object = None) -> CommitInfo:
    return CommitInfo({"timestamp": 1} if time is None else {"inCommitTimestamp": time})


def carrying(*times: object) -> LogOf:
    """A table whose first commit carries FAR, and then commits that carry these."""
    table = LogOf()
    table.commit(0, info(FAR), CARRIES, metadata(ON), add("a"))
    for version, time in enumerate(times, 1):
        table.commit(version, info(time), add(f"b{version}"))
    return table


BROKEN: dict[str, tuple[object, str]] = {
    "none": (None, "of milliseconds since 1970 .* found none"),
    "a text": (str(FAR + 1), f"found '{FAR + 1}'"),
    "a fraction": (FAR + 1.5, "found "),
    "a truth": (True, "found True"),
    "below zero": (-1, "found -1"),
    "beyond every time": (2**63 - 1, f"found {2**63 - 1}"),
    "the same again": (FAR, f"later than {FAR}, which an earlier version has .* found {FAR}"),
    "an earlier one": (5, f"later than {FAR}, which an earlier version has .* found 5"),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest) -> tuple[object, str]:
    return BROKEN[str(request.param)]


def refused(commit: Callable[[], object], table: LogOf, message: str, version: int = 1) -> None:
    """Raise CorruptTable naming the commit, and there is no commit more."""
    before = table.paths
    with pytest.raises(CorruptTable, match=rf"^t: {commit_path(version)}: expected .*{message}"):
        commit()
    assert table.paths == before


def test_a_commit_that_was_read_already(broken: tuple[object, str]) -> None:
    time, message = broken
    table = carrying(time)
    said = message if "later than" in message else "found none"
    refused(lambda: append(table, "ours"), table, said)


def test_a_winner(broken: tuple[object, str]) -> None:
    time, message = broken
    table = carrying()
    transaction = begin(table)
    transaction.stage([add("ours")], operation="WRITE")
    table.commit(1, info(time), add("theirs"))
    refused(transaction.commit, table, message)


def test_a_winner_that_others_followed(broken: tuple[object, str]) -> None:
    time, message = broken
    table = carrying()
    transaction = begin(table)
    transaction.stage([add("ours")], operation="WRITE")
    table.commit(1, info(time), add("theirs")).commit(2, info(FAR + 9), add("theirs too"))
    refused(transaction.commit, table, message)


def test_a_winner_that_took_the_version_of_an_attempt() -> None:
    table = carrying()
    transaction = begin(table)
    transaction.stage([add("ours")], operation="WRITE")
    put = table.store.put_if_absent

    def lose(path: str, data: bytes) -> object:
        table.store.put_if_absent = put  # type: ignore[method-assign]
        table.commit(1, info(), add("theirs"))
        return put(path, data)

    table.store.put_if_absent = lose  # type: ignore[method-assign, assignment]
    with pytest.raises(CorruptTable, match=commit_path(1)):
        transaction.commit()
    assert commit_path(2) not in table.paths


def test_the_mend_that_the_message_names() -> None:
    table = carrying(None)
    refused(lambda: append(table, "ours"), table, MEND)
    with pytest.raises(CorruptTable, match=MEND):
        table.open().history()
    for configuration in (OFF, ON):
        transaction = begin(table)
        transaction.stage([metadata(configuration)], operation="SET TBLPROPERTIES")
        transaction.commit()
    times = [row["timestamp"] for row in table.open().history()]
    assert append(table, "ours").version == 4
    assert sorted(map(int, map(str, times)), reverse=True) == times


def test_one_that_turns_them_off_follows_such_a_winner() -> None:
    table = carrying()
    transaction = begin(table)
    transaction.stage([metadata(OFF)], operation="SET TBLPROPERTIES")
    table.commit(1, info(), add("theirs"))
    assert transaction.commit().version == 2


def test_one_that_lies_before_they_were_on_is_no_matter() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    transaction.stage([metadata(ON)], operation="SET TBLPROPERTIES")
    table.commit(1, info(), add("theirs"))
    assert transaction.commit().version == 2
    assert append(table, "ours").version == 3


def test_a_winner_that_turns_them_on_has_to_carry_one() -> None:
    table = LogOf().create(add("a"), protocol=CARRIES)
    transaction = begin(table)
    transaction.stage([add("ours")], operation="WRITE")
    table.commit(1, info(), metadata(ON))
    refused(transaction.commit, table, "found none")


def test_times_that_start_anew_need_not_be_later_than_old_ones() -> None:
    table = carrying().commit(1, info(), metadata(OFF))
    table.commit(2, info(START + 5), metadata(ON))
    assert append(table, "ours").version == 3
    transaction = begin(table)
    transaction.stage([add("more")], operation="WRITE")
    append(table, "theirs")
    assert transaction.commit().version == 5


def test_the_time_of_a_commit_that_is_not_its_first_action_counts() -> None:
    table = LogOf()
    early: list[Action] = [CARRIES, metadata(ON), info(FAR), info(5), add("a")]
    table.store.put(commit_path(0), encode_actions(early))
    assert append(table, "ours").version == 1
    assert info_at(table, 1)["inCommitTimestamp"] == FAR + 1
    transaction = begin(table)
    transaction.stage([add("more")], operation="WRITE")
    late: list[Action] = [add("theirs"), info(FAR + 7), info(5)]
    table.store.put(commit_path(2), encode_actions(late))
    transaction.commit()
    assert info_at(table, 3)["inCommitTimestamp"] == FAR + 8


def test_behind_a_checkpoint_the_commit_itself_is_asked() -> None:
    table = carrying(None)
    write_checkpoint(table.open())
    refused(lambda: append(table, "ours"), table, "found none")
    whole = carrying(FAR + 1)
    write_checkpoint(whole.open())
    append(whole, "ours")
    assert info_at(whole, 2)["inCommitTimestamp"] == FAR + 2


def test_a_conflict_does_not_hide_it() -> None:
    table = carrying()
    transaction = begin(table)
    transaction.stage([remove("a")], operation="DELETE")
    table.commit(1, info(), remove("a"))
    refused(transaction.commit, table, "found none")
    whole = carrying()
    transaction = begin(whole)
    transaction.stage([remove("a")], operation="DELETE")
    whole.commit(1, info(FAR + 1), remove("a"))
    with pytest.raises(ConcurrentDeleteDeleteException):
        transaction.commit()


def test_who_writes_nothing_there_is_not_kept_from_anything() -> None:
    table = carrying()
    transaction = begin(table, Level.SERIALIZABLE)
    transaction.read(None, None)
    elsewhere = begin(LogOf().create())
    elsewhere.stage([add("a")], operation="WRITE")
    proposal = transaction.proposal(txn_id="reader", parts=PartSummaries([elsewhere.part_summary]))
    table.commit(1, info(), remove("nothing"))
    check_reads(table.open(), proposal)
    assert table.open().latest().version == 1
    assert table.open().latest().timestamp_ms == table.clock.time_ms


def test_without_them_nothing_is_asked() -> None:
    table = LogOf().create(add("a"), protocol=PROTOCOL)
    transaction = begin(table)
    transaction.stage([add("ours")], operation="WRITE")
    table.commit(1, info("soon"), add("theirs"))
    assert transaction.commit().version == 2


def test_a_table_of_a_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = LakeOf().create("t", configuration=ON)
    ours = lake.begin()
    ours.table("t").stage([add("ours")], operation="WRITE")
    with monkeypatch.context() as patch:  # an engine that forgets the time
        patch.setattr(rebase, "commit_time", lambda *_: None)
        lake.append("t", add("theirs"))
    with pytest.raises(CorruptTable, match=rf"^t: {commit_path(1)}: expected an inCommitTimestamp"):
        ours.commit()
    with pytest.raises(CorruptTable, match=commit_path(1)):
        lake.append("t", add("more"))
    head = lake.ledger.head("t")
    assert head is not None
    assert head.version == 1


def test_who_turns_it_off_leaves_nothing_that_says_since_when_it_is_on() -> None:
    table = LogOf().create(add("a"))
    left = metadata({SINCE_VERSION: "7", SINCE_TIMESTAMP: "8", "mine": "x"})
    found = with_enablement(left, table.open().latest(), 1, None)
    assert found.configuration == {"mine": "x"}
