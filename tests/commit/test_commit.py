"""One attempt after the other: what a commit says, whom it follows, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.commit.committing import append, begin, info_at, lines_at
from tests.commit.log_of import START, Clock, FakeStore, LogOf, add, metadata
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.levels import Level
from txlake.errors import (
    ConcurrentAppendException,
    Conflict,
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    ProtocolChangedException,
    Unavailable,
    UnsupportedFeature,
)
from txlake.ports import PutOutcome, StoredObject
from txlake.protocol.actions import (
    Add,
    CommitInfo,
    Protocol,
    Txn,
    decode_actions,
    encode_actions,
)
from txlake.protocol.file_names import (
    ClassicCheckpoint,
    checksum_path,
    commit_path,
    log_path,
)
from txlake.settings import RetrySettings, Settings

# --- what a commit says ---------------------------------------------------------------------------


def test_the_first_line_says_who_how_and_under_which_level() -> None:
    table = LogOf().create()
    transaction = begin(table, Level.SERIALIZABLE)
    transaction.stage(
        [add("a")],
        operation="WRITE",
        parameters={"mode": "Append", "partitionBy": ["p"], "isManaged": False, "n": None},
        metrics={"numFiles": 1},
        tags={"tag": "value"},
    )
    committed = transaction.commit(user_metadata="mine", user="ada")
    assert (committed.version, committed.attempts, committed.rebased_over) == (1, 1, ())
    info = info_at(table, 1)
    assert list(info) == [
        "timestamp",
        "userName",
        "operation",
        "operationParameters",
        "readVersion",
        "isolationLevel",
        "isBlindAppend",
        "operationMetrics",
        "userMetadata",
        "tags",
        "engineInfo",
        "txnId",
    ]
    assert info["operationParameters"] == {
        "mode": "Append",
        "partitionBy": '["p"]',
        "isManaged": "false",
        "n": None,
    }
    assert info["operationMetrics"] == {"numFiles": "1"}
    assert (info["userMetadata"], info["userName"], info["tags"]) == (
        "mine",
        "ada",
        {"tag": "value"},
    )
    assert (info["readVersion"], info["isolationLevel"]) == (0, "Serializable")
    assert info["isBlindAppend"] is True
    assert str(info["engineInfo"]).startswith("txlake/")
    assert info["timestamp"] == table.clock.now_ms()


def test_what_isnt_known_is_left_out() -> None:
    table = LogOf()
    transaction = begin(table)
    transaction.stage([metadata()], operation="CREATE TABLE")
    transaction.commit()
    info = info_at(table, 0)
    assert (
        not {"readVersion", "tags", "userMetadata", "userName", "inCommitTimestamp"} & info.keys()
    )
    assert lines_at(table, 0) == ["commitInfo", "protocol", "metaData"]
    assert info["isolationLevel"] == "SnapshotIsolation"
    assert info["isBlindAppend"] is False


def test_every_commit_has_an_id_of_its_own() -> None:
    table = LogOf().create()
    append(table, "a")
    append(table, "b")
    assert info_at(table, 1)["txnId"] != info_at(table, 2)["txnId"]


def test_settings_come_before_files_and_removes_before_adds() -> None:
    table = LogOf().create(add("a"))
    transaction = begin(table)
    (file,) = transaction.base.files.adds()
    transaction.stage(
        [
            add("b"),
            file.tombstone(timestamp_ms=1),
            Txn(app_id="app", version=1),
            metadata({"delta.appendOnly": "false"}),
        ],
        operation="WRITE",
    )
    transaction.commit()
    assert lines_at(table, 1) == ["commitInfo", "metaData", "txn", "remove", "add"]


# --- whom it follows ------------------------------------------------------------------------------


def test_winners_are_checked_before_the_first_attempt() -> None:
    table = LogOf().create()
    transaction = begin(table)
    append(table, "a")
    append(table, "b")
    transaction.stage([add("c")], operation="WRITE")
    committed = transaction.commit()
    assert (committed.version, committed.attempts, committed.rebased_over) == (3, 1, (1, 2))
    assert info_at(table, 3)["readVersion"] == 0
    assert sorted(file.path for file in committed.snapshot.files.adds()) == ["a", "b", "c"]


def test_a_gap_that_log_cleanup_left_is_not_filled() -> None:
    table = LogOf(Settings()).create()
    transaction = begin(table)
    for number in range(1, 11):
        append(table, f"f{number}")
    for version in range(1, 5):
        table.remove_file(commit_path(version))
    transaction.stage([add("mine")], operation="WRITE")
    with pytest.raises(Exception, match=r"00000000000000000001\.json is missing"):
        transaction.commit()
    assert commit_path(1) not in table.paths


def test_every_winner_is_checked_where_old_commits_were_cleaned_up() -> None:
    table = LogOf(Settings()).create(add("a"))
    for number in range(1, 11):
        append(table, f"f{number}")
    ours, theirs = begin(table), begin(table)
    for one in (ours, theirs):
        file = one.base.files.get(("a", None))
        assert file is not None
        one.stage([file.tombstone(timestamp_ms=1)], operation="DELETE")
    theirs.commit()
    append(table, "later")
    table.remove_file(commit_path(0))
    with pytest.raises(Conflict):
        ours.commit()
    assert commit_path(13) not in table.paths


def test_nothing_to_commit_makes_no_version_and_asks_nothing() -> None:
    table = LogOf().create()
    transaction = begin(table, Level.SERIALIZABLE)
    transaction.read()
    transaction.plain_read()
    transaction.app_version("app")
    append(table, "a")
    table.store.requests.clear()
    committed = transaction.commit()
    assert (committed.version, committed.attempts, committed.rebased_over) == (0, 0, ())
    assert table.store.requests == []
    assert commit_path(2) not in table.paths


def test_the_own_commit_is_the_newest_without_reading_it() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")
    committed = transaction.commit()
    table.store.requests.clear()
    assert transaction.log.latest().files.get(("a", None)) == add("a")
    assert [kind for kind, _ in table.store.requests] == ["list"]
    assert committed.snapshot.version == 1


def test_the_time_of_the_own_commit_is_its_files() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")
    transaction.commit()
    path = commit_path(1)
    table.store.files[path] = (table.store.files[path][0], START + 77)
    assert transaction.log.latest().timestamp_ms == START + 77
    assert table.open().latest().timestamp_ms == START + 77


def test_a_conflict_leaves_nothing_behind() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.read()
    transaction.stage([add("b")], operation="WRITE")
    reader = begin(table)
    reader.read()
    reader.stage([add("a")], operation="WRITE")
    reader.commit()
    paths = table.paths
    with pytest.raises(ConcurrentAppendException):
        transaction.commit()
    assert table.paths == paths


def test_a_winners_protocol_beyond_us() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")
    features = ("teleport",)
    beyond = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    table.commit(1, beyond)
    with pytest.raises(UnsupportedFeature, match="teleport"):
        transaction.commit()


def test_two_creators() -> None:
    table = LogOf()
    first, second = begin(table), begin(table)
    for transaction in (first, second):
        transaction.stage([metadata()], operation="CREATE TABLE")
    assert first.commit().version == 0
    with pytest.raises(ProtocolChangedException, match="created the table"):
        second.commit()


def test_a_creator_meets_a_table_whose_first_commits_are_gone() -> None:
    table = LogOf()
    creator = begin(table)
    creator.stage([metadata()], operation="CREATE TABLE")
    begin_other = begin(table)
    begin_other.stage([metadata()], operation="CREATE TABLE")
    begin_other.commit()
    for number in range(1, 11):
        append(table, f"f{number}")
    table.remove_file(commit_path(0))
    with pytest.raises(ProtocolChangedException):
        creator.commit()


def test_a_table_that_was_replaced_by_a_shorter_one() -> None:
    table = LogOf().create()
    append(table, "a")
    transaction = begin(table)
    transaction.stage([add("b")], operation="WRITE")
    table.remove_file(commit_path(1))
    with pytest.raises(InvalidRequest, match="version 1, which this transaction read, is gone"):
        transaction.commit()


def test_once_only() -> None:
    transaction = begin(LogOf().create())
    transaction.stage([add("a")], operation="WRITE")
    transaction.commit()
    with pytest.raises(InvalidRequest, match="committed already"):
        transaction.commit()
    with pytest.raises(InvalidRequest, match="committed already"):
        transaction.stage([add("b")], operation="WRITE")


# --- how it ends: puts that are lost, late, sent twice --------------------------------------------


@dataclass
class Script(FakeStore):
    """A store whose puts of commits follow a script, and then the rules."""

    clock: Clock
    steps: list[Callable[[str, bytes], PutOutcome]] = field(default_factory=list)
    away_once: bool = False

    def __post_init__(self) -> None:
        super().__init__(self.clock)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if path.endswith(".json") and self.steps:
            return self.steps.pop(0)(path, data)
        return super().put_if_absent(path, data)

    def lost_after(self, path: str, data: bytes) -> PutOutcome:
        """Done, and no reply."""
        super().put_if_absent(path, data)
        return PutOutcome.UNKNOWN

    def lost_and_away(self, path: str, data: bytes) -> PutOutcome:
        """Done, no reply, and then the store is away."""
        super().put_if_absent(path, data)
        self.failing.add(path)
        return PutOutcome.UNKNOWN

    def lost_before(self, path: str, data: bytes) -> PutOutcome:
        """Not done, and no reply."""
        return PutOutcome.UNKNOWN

    def sent_twice(self, path: str, data: bytes) -> PutOutcome:
        """Done, and the client's second try says that there is one."""
        super().put_if_absent(path, data)
        return super().put_if_absent(path, data)

    def sent_twice_and_followed(self, path: str, data: bytes) -> PutOutcome:
        """Done twice; another's commit follows, and what is before it can't be read."""
        self.taken(commit_path(2), b"")
        self.failing.add(commit_path(0))
        return self.sent_twice(path, data)

    def sent_twice_and_upgraded(self, path: str, data: bytes) -> PutOutcome:
        """Done twice; another's commit follows, which needs what no txlake has."""
        features = ("teleport",)
        upgrade = Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=features,
            writer_features=features,
        )
        outcome = self.sent_twice(path, data)
        self.put(commit_path(2), encode_actions([upgrade]))
        return outcome

    def lost_and_away_for_a_moment(self, path: str, data: bytes) -> PutOutcome:
        """Done, no reply, and the next request finds the store away."""
        super().put_if_absent(path, data)
        self.away_once = True
        return PutOutcome.UNKNOWN

    def get(self, path: str) -> bytes:
        if self.away_once:
            self.away_once = False
            raise Unavailable(f"{path}: away")
        return super().get(path)

    def said_to_be_there(self, path: str, data: bytes) -> PutOutcome:
        """Not done, and nobody else's either."""
        return PutOutcome.EXISTS

    def refused(self, path: str, data: bytes) -> PutOutcome:
        """Away."""
        raise Unavailable(f"{path}: away")

    def taken(self, path: str, data: bytes) -> PutOutcome:
        """Another writer was faster."""
        self.put(path, b'{"commitInfo":{"txnId":"another","isBlindAppend":true}}\n')
        return PutOutcome.EXISTS

    def lost_and_taken(self, path: str, data: bytes) -> PutOutcome:
        """Another writer was faster, and there is no reply."""
        self.taken(path, data)
        return PutOutcome.UNKNOWN


def scripted(*steps: str, settings: Settings | None = None) -> tuple[Script, TableTransaction]:
    table = LogOf(settings).create(configuration={"delta.checkpointInterval": "1"})
    store = Script(table.clock)
    store.files = table.store.files
    log = TableLog(store, table.clock, table.settings, name="t")
    transaction = TableTransaction(log, log.latest())
    transaction.stage([add("a")], operation="WRITE")
    store.steps = [getattr(store, step) for step in steps]
    return store, transaction


@pytest.mark.parametrize(
    ("steps", "version", "attempts", "rebased_over"),
    [
        ((), 1, 1, ()),
        (("taken",), 2, 2, (1,)),
        (("taken", "taken", "taken"), 4, 4, (1, 2, 3)),
        (("lost_after",), 1, 1, ()),
        (("lost_before",), 1, 2, ()),
        (("lost_before", "lost_after"), 1, 2, ()),
        (("lost_and_taken",), 2, 2, (1,)),
        (("sent_twice",), 1, 1, ()),
        (("lost_before", "taken"), 2, 3, (1,)),
        (("lost_and_away_for_a_moment",), 1, 1, ()),
    ],
)
def test_a_commit_is_there_once(
    steps: tuple[str, ...], version: int, attempts: int, rebased_over: tuple[int, ...]
) -> None:
    store, transaction = scripted(*steps)
    committed = transaction.commit()
    assert (committed.version, committed.attempts) == (version, attempts)
    assert committed.rebased_over == rebased_over
    path = commit_path(version)
    assert any(isinstance(a, Add) for a in decode_actions(store.files[path][0], file=path))
    assert commit_path(version + 1) not in store.files
    assert committed.snapshot.version == version
    assert ("a", None) in committed.snapshot.files
    # What follows a commit follows it however its outcome was learned.
    assert log_path(ClassicCheckpoint(version)) in store.files
    assert checksum_path(version) in store.files


def test_the_history_says_what_was_rebased_over_and_tried() -> None:
    store, transaction = scripted("taken", "taken")
    assert transaction.commit().version == 3
    path = commit_path(3)
    info = decode_actions(store.files[path][0], file=path)[0]
    assert isinstance(info, CommitInfo)
    assert info.values["operationMetrics"] == {"numRebasedCommits": "2", "numCommitRetries": "2"}
    assert info.values["readVersion"] == 0


@pytest.mark.parametrize(
    "steps",
    [
        ("lost_before",) * 10,
        ("lost_before", "refused"),
    ],
)
def test_an_outcome_that_stays_unknown_says_what_to_look_for(steps: tuple[str, ...]) -> None:
    _, transaction = scripted(*steps)
    with pytest.raises(OutcomeUnknown, match=r"t: .*version 1 .*txnId [0-9a-f-]{36}"):
        transaction.commit()


def test_looking_in_vain_is_unknown_too() -> None:
    _, transaction = scripted("lost_and_away")
    with pytest.raises(OutcomeUnknown):
        transaction.commit()


@pytest.mark.parametrize("followed", ["sent_twice_and_followed", "sent_twice_and_upgraded"])
def test_a_commit_that_is_there_but_cant_be_read_is_unknown(followed: str) -> None:
    store, transaction = scripted(followed)
    with pytest.raises(OutcomeUnknown):
        transaction.commit()
    assert commit_path(1) in store.files


@pytest.mark.parametrize("away", [False, True])
def test_a_commit_sent_twice_that_no_listing_tells_of_is_unknown(
    monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """Seed 204 of the simulation: it was told as refused, and stood."""
    store, transaction = scripted("sent_twice")

    def listed(
        prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        found = list(Script.list(store, prefix, start_after, before))
        if away and commit_path(1) in store.files:
            raise Unavailable("away")
        return iter([one for one in found if one.path != commit_path(1)])

    monkeypatch.setattr(store, "list", listed)
    with pytest.raises(OutcomeUnknown, match="version 1"):
        transaction.commit()
    assert commit_path(1) in store.files


def test_a_listing_without_a_version_that_exists_is_no_listing() -> None:
    _, transaction = scripted("said_to_be_there")
    with pytest.raises(CorruptTable, match=r"0{19}1\.json exists, but the listing .* version 0"):
        transaction.commit()


def test_a_lost_reply_is_settled_by_anothers_commit_at_its_version() -> None:
    _, transaction = scripted("lost_and_taken", "refused")
    with pytest.raises(Unavailable, match="away"):
        transaction.commit()


@pytest.mark.parametrize(
    ("steps", "waits"),
    [
        ((), []),
        (("taken",), []),
        (("taken", "taken"), [20]),
        (("lost_before",), [10]),
        (("lost_and_away_for_a_moment",), [10]),
    ],
)
def test_who_lost_twice_or_had_no_reply_waits_before_the_next_request(
    steps: tuple[str, ...], waits: list[int]
) -> None:
    _, transaction = scripted(*steps, settings=Settings(retry=RetrySettings(wait_ms_min=10)))
    waited: list[float] = []
    object.__setattr__(transaction.log.system, "wait_ms", waited.append)
    transaction.commit()
    assert waited == waits


# --- a log clean-up while the writer stands still -------------------------------------------------

MINUTES = 2 * 60_000
BY_ANOTHER = b'{"commitInfo":{"txnId":"another","isBlindAppend":true}}\n'


@dataclass
class StandingStill(Script):
    """A store whose other writers are at work between the writer's listing and its put."""

    def others_commit(self, *versions: int) -> None:
        for version in versions:
            self.put(commit_path(version), BY_ANOTHER)

    def cleaned_up(self, path: str, data: bytes) -> PutOutcome:
        """Three commits and a checkpoint follow, and a clean-up deletes the first two commits."""
        self.others_commit(1, 2, 3)
        write_checkpoint(TableLog(self, self.clock, Settings(), name="t"))
        self.delete([commit_path(1), commit_path(2)])
        self.clock.time_ms += MINUTES
        return FakeStore.put_if_absent(self, path, data)

    def cleaned_up_and_lost(self, path: str, data: bytes) -> PutOutcome:
        """The same, and there is no reply."""
        self.cleaned_up(path, data)
        return PutOutcome.UNKNOWN

    def being_cleaned_up(self, path: str, data: bytes) -> PutOutcome:
        """The same, and the clean-up has deleted the first one so far."""
        self.others_commit(1, 2, 3)
        self.delete([commit_path(1)])
        self.clock.time_ms += MINUTES
        return FakeStore.put_if_absent(self, path, data)

    def followed(self, path: str, data: bytes) -> PutOutcome:
        """The put was slow, and two commits follow it."""
        self.clock.time_ms += MINUTES
        outcome = FakeStore.put_if_absent(self, path, data)
        self.clock.time_ms += MINUTES
        self.others_commit(2, 3)
        return outcome

    def put_then_deleted(self, path: str, data: bytes, *versions: int) -> PutOutcome:
        """The put was slow, two commits follow it, and a clean-up deletes these versions."""
        outcome = self.followed(path, data)
        self.delete([commit_path(version) for version in versions])
        return outcome

    def put_then_cleaned_up(self, path: str, data: bytes) -> PutOutcome:
        return self.put_then_deleted(path, data, 1, 2)

    def put_then_deleted_first(self, path: str, data: bytes) -> PutOutcome:
        return self.put_then_deleted(path, data, 1)

    def put_then_deleted_next(self, path: str, data: bytes) -> PutOutcome:
        return self.put_then_deleted(path, data, 2)

    def put_then_vanished(self, path: str, data: bytes) -> PutOutcome:
        """The put was slow, and no listing shows it."""
        self.clock.time_ms += MINUTES
        return PutOutcome.CREATED

    def slow(self, path: str, data: bytes) -> PutOutcome:
        """Nobody else was there."""
        self.clock.time_ms += MINUTES
        return FakeStore.put_if_absent(self, path, data)


def standing_still(step: str) -> tuple[StandingStill, TableTransaction]:
    table = LogOf(Settings()).create()
    store = StandingStill(table.clock)
    store.files = table.store.files
    log = TableLog(store, table.clock, table.settings, name="t")
    transaction = TableTransaction(log, log.latest())
    transaction.stage([add("a")], operation="WRITE")
    store.steps = [getattr(store, step)]
    return store, transaction


@pytest.mark.parametrize("step", ["cleaned_up", "cleaned_up_and_lost"])
def test_a_version_that_a_clean_up_deleted_is_not_committed_again(step: str) -> None:
    store, transaction = standing_still(step)
    with pytest.raises(Unavailable, match=r"t: version 1 .*clean-up.*version 3.*nothing was com"):
        transaction.commit()
    assert commit_path(1) not in store.files
    assert store.files[commit_path(3)][0] == BY_ANOTHER


@pytest.mark.parametrize(
    ("step", "is_there"),
    [
        ("being_cleaned_up", True),
        ("put_then_deleted_next", True),
        ("put_then_deleted_first", False),
        ("put_then_cleaned_up", False),
        ("put_then_vanished", False),
    ],
)
def test_a_version_that_may_precede_the_next_one_or_not_is_unknown(
    step: str, is_there: bool
) -> None:
    store, transaction = standing_still(step)
    with pytest.raises(OutcomeUnknown, match=r"t: version 1 .*prove that version 2 follows"):
        transaction.commit()
    assert (commit_path(1) in store.files) is is_there


@pytest.mark.parametrize("step", ["followed", "slow"])
def test_a_slow_put_that_others_follow_is_committed(step: str) -> None:
    store, transaction = standing_still(step)
    assert transaction.commit().version == 1
    assert commit_path(1) in store.files


def test_a_prompt_put_lists_the_log_once() -> None:
    table = LogOf(Settings()).create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")
    table.store.requests.clear()
    transaction.commit()
    assert [kind for kind, _ in table.store.requests].count("list") == 1


def test_a_store_that_is_away_committed_nothing() -> None:
    store, transaction = scripted("refused")
    with pytest.raises(Unavailable, match="away"):
        transaction.commit()
    assert commit_path(1) not in store.files


def test_attempts_are_bounded_and_waits_grow() -> None:
    retry = RetrySettings(commit_attempts_max=6, wait_ms_min=10, wait_ms_max=100)
    store, transaction = scripted(*("taken",) * 10, settings=Settings(retry=retry))
    waits: list[float] = []
    object.__setattr__(transaction.log.system, "wait_ms", waits.append)
    with pytest.raises(
        Unavailable, match=r"6 attempts .*newest at version 6; nothing was committed"
    ):
        transaction.commit()
    assert waits == [20, 40, 50, 50, 50]  # half of what is allowed: the clock's chance is 0.5
    assert len(store.steps) == 4


def test_threads_that_share_a_log_commit_in_turn() -> None:
    settings = Settings(retry=RetrySettings(queue_ms_max=0))
    table = LogOf(settings).create(configuration={"delta.checkpointInterval": "1"})
    log, free = table.open(), {}
    put = table.store.put_if_absent

    def looking(path: str, data: bytes) -> PutOutcome:
        with log.turn() as is_mine:
            free[path.endswith(".json")] = is_mine
        return put(path, data)

    table.store.put_if_absent = looking  # type: ignore[method-assign]
    transaction = TableTransaction(log, log.latest())
    transaction.stage([add("a")], operation="WRITE")
    assert transaction.commit().version == 1
    assert free == {True: False, False: True}  # a checkpoint keeps nobody waiting


def test_who_waited_long_enough_commits_out_of_turn() -> None:
    table = LogOf(Settings(retry=RetrySettings(queue_ms_max=0))).create()
    log = table.open()
    transaction = TableTransaction(log, log.latest())
    transaction.stage([add("a")], operation="WRITE")
    with log.turn():
        assert transaction.commit().version == 1


def test_an_unsafe_store_is_refused_before_the_commit() -> None:
    table = LogOf().create()
    transaction = begin(table)
    transaction.stage([add("a")], operation="WRITE")

    def unsafe() -> None:
        raise InvalidRequest("memory://test overwrites")

    table.store.ensure_safe = unsafe  # type: ignore[method-assign]
    with pytest.raises(InvalidRequest, match="overwrites"):
        transaction.commit()
    assert commit_path(1) not in table.paths


def test_a_checkpoint_by_interval_that_fails_fails_no_commit() -> None:
    table = LogOf().create(configuration={"delta.checkpointInterval": "2"})
    append(table, "a")
    append(table, "b")
    assert "_delta_log/00000000000000000002.checkpoint.parquet" in table.paths
    table.store.failing |= {
        "_delta_log/00000000000000000004.checkpoint.parquet",
        "_delta_log/00000000000000000004.crc",
    }
    append(table, "c")
    assert append(table, "d").version == 4
    assert "_delta_log/00000000000000000004.checkpoint.parquet" not in table.paths
