"""Commits that another engine staged for open tables: ratified, published, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from tests.commit.foreign import stage
from tests.commit.lake_of import LakeOf, paths, when
from tests.commit.log_of import add, metadata
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.foreign_commit import (
    Accepted,
    AlreadyCommitted,
    Busy,
    CommitRequest,
    Outcome,
    Overtaken,
    Refused,
    Rejected,
    StagedFile,
    commit_foreign,
    commit_foreign_together,
)
from txlake.commit.membership import DOMAIN, TABLE_ID
from txlake.commit.table_log import TableLog
from txlake.errors import (
    ConcurrentDeleteDeleteException,
    CorruptTable,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
)
from txlake.log.snapshot import Snapshot
from txlake.ports import Ratification, TableCommit
from txlake.protocol.actions import CommitInfo, DomainMetadata, encode_actions
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.settings import RetrySettings, Settings

LATER = 1_000_000
MAX = 1_000_000


def lake_of_open(settings: Settings | None = None) -> LakeOf:
    """A lake with the open table `a`, at version 0."""
    return LakeOf(settings).create("a", opens=True)


def ask(lake: LakeOf, staged: StagedFile, *, bytes_max: int = MAX, name: str = "a") -> Outcome:
    """Asks the catalog to make it true, in a transaction of its own."""
    asking = lake.system.new_id()
    return commit_foreign(lake.open(name), staged, transaction_id=asking, bytes_max=bytes_max)


def now_ms(lake: LakeOf) -> int:
    """A time after all commits."""
    return lake.system.now_ms() + LATER


def staged_append(lake: LakeOf, version: int, name: str = "x", *, later: int = 0) -> StagedFile:
    """An append of one file, staged."""
    return stage(lake.store("a"), version, now_ms(lake) + later, add(name))


def test_a_staged_commit_is_published_byte_by_byte() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    content = lake.store("a").get(f"{STAGED_FOLDER}/{staged.name}")
    found = ask(lake, staged)
    assert isinstance(found, Accepted)
    assert found.is_published
    assert lake.store("a").get(commit_path(1)) == content
    assert paths(lake, "a") == ["x"]
    assert found.snapshot.version == 1
    # Its writer may be reading it.
    assert lake.store("a").get(f"{STAGED_FOLDER}/{staged.name}") == content


def test_what_was_judged_is_published_whatever_becomes_of_the_file() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    path = f"{STAGED_FOLDER}/{staged.name}"
    content = lake.store("a").get(path)
    when(lake, "ratify", lambda: lake.store("a").put(path, b"{}"))
    assert isinstance(ask(lake, staged), Accepted)
    assert lake.store("a").get(commit_path(1)) == content


def test_a_large_commit_is_kept_beside_the_catalog() -> None:
    lake = lake_of_open(Settings(inline_commit_bytes_max=10))
    staged = staged_append(lake, 1)
    assert isinstance(ask(lake, staged), Accepted)
    kept = [one.path for one in lake.store("a").list(STAGED_FOLDER)]
    assert kept == [f"{STAGED_FOLDER}/{staged.name}"]
    assert paths(lake, "a") == ["x"]


def test_who_sends_it_again_is_told_that_it_stands() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    assert isinstance(ask(lake, staged), Accepted)
    assert isinstance(ask(lake, staged), AlreadyCommitted)
    assert isinstance(ask(lake, staged_append(lake, 2, "y", later=1)), Accepted)
    again = ask(lake, staged)
    assert isinstance(again, AlreadyCommitted)
    assert again.snapshot.version == 2
    assert paths(lake, "a") == ["x", "y"]


def test_another_commit_of_a_version_that_is_taken_is_told_so() -> None:
    lake = lake_of_open()
    lake.append("a", add("ours"))
    assert ask(lake, staged_append(lake, 1)) == Overtaken(1)
    assert ask(lake, staged_append(lake, 3)) == Overtaken(1)
    assert paths(lake, "a") == ["ours"]


def test_one_that_comes_first_in_the_last_moment_wins() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    when(lake, "ratify", lambda: lake.append("a", add("ours")))
    assert ask(lake, staged) == Overtaken(1)
    assert paths(lake, "a") == ["ours"]


def test_whose_turn_it_is_goes_first() -> None:
    lake = lake_of_open()
    lake.ledger.reserve("another", ["a"])
    assert isinstance(ask(lake, staged_append(lake, 1)), Busy)
    assert paths(lake, "a") == []


def test_our_transactions_follow_it() -> None:
    lake = lake_of_open()
    tx = lake.begin()
    tx.table("a").stage([add("ours")], operation="WRITE")
    assert isinstance(ask(lake, staged_append(lake, 1)), Accepted)
    tx.commit()
    assert paths(lake, "a") == ["ours", "x"]
    assert lake.open("a").latest().version == 2


def test_our_transaction_that_it_gets_in_the_way_of_loses() -> None:
    lake = lake_of_open()
    lake.append("a", add("x"))
    tx = lake.begin()
    gone = add("x").tombstone(timestamp_ms=1)
    tx.table("a").stage([gone], operation="DELETE")
    theirs = stage(lake.store("a"), 2, now_ms(lake), gone)
    assert isinstance(ask(lake, theirs), Accepted)
    with pytest.raises(ConcurrentDeleteDeleteException, match="version 2"):
        tx.commit()


def test_our_next_commit_has_a_later_time() -> None:
    lake = lake_of_open()
    ahead = staged_append(lake, 1, later=10 * LATER)
    assert isinstance(ask(lake, ahead), Accepted)
    lake.append("a", add("ours"))
    time = lake.open("a").latest().in_commit_timestamp_ms
    assert time is not None
    assert time > ahead.timestamp_ms


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("twice", "it is added twice"),
        ("not live", "it isn't in the table"),
        ("old", "isn't later than"),
        ("without times", "expected 'true'"),
    ],
)
def test_what_would_corrupt_is_refused(what: str, reason: str) -> None:
    lake = lake_of_open()
    store, time = lake.store("a"), now_ms(lake)
    settings = lake.open("a").latest().metadata
    bare = {k: v for k, v in settings.configuration.items() if "InCommit" not in k}
    changed = type(settings)(
        **{
            **{name: getattr(settings, name) for name in settings.__struct_fields__},
            "configuration": bare,
        }
    )
    cases = {
        "twice": stage(store, 1, time, add("x"), add("x")),
        "not live": stage(store, 1, time, add("y").tombstone(timestamp_ms=1)),
        "old": stage(store, 1, 1, add("x")),
        "without times": stage(store, 1, time, changed),
    }
    before = lake.ledger.head("a")
    found = ask(lake, cases[what])
    assert isinstance(found, Refused)
    assert reason in found.reason
    assert lake.ledger.head("a") == before


def test_a_file_that_is_not_what_was_told() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    other = f"{2:020d}.0-1.json"
    cases = {
        "there is no staged commit": replace(staged, name=f"{1:020d}.gone.json"),
        "bytes were told|were told": replace(staged, size_bytes=1),
        "as the name of the staged commit": replace(staged, name=other),
        "name of the staged": replace(staged, name="../../a.json"),
    }
    for message, asked in cases.items():
        with pytest.raises(InvalidRequest, match=message):
            ask(lake, asked)
    with pytest.raises(InvalidRequest, match="a commit at most 10"):
        ask(lake, staged, bytes_max=10)
    lake.store("a").put(f"{STAGED_FOLDER}/{staged.name}", b"x" * staged.size_bytes)
    with pytest.raises(InvalidRequest, match="broken JSON"):
        ask(lake, staged)
    assert paths(lake, "a") == []


def test_a_table_that_is_not_open_takes_none() -> None:
    lake = LakeOf().create("a")
    with pytest.raises(InvalidRequest, match="opens it to other engines"):
        ask(lake, staged_append(lake, 1))
    assert paths(lake, "a") == []


def test_a_lost_reply_is_told_as_unknown_and_settled_by_sending_again() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)

    def lose() -> None:
        raise OutcomeUnknown("the reply was lost")

    when(lake, "ratify done", lose)
    with pytest.raises(OutcomeUnknown):
        ask(lake, staged)
    assert isinstance(ask(lake, staged), AlreadyCommitted)
    assert paths(lake, "a") == ["x"]


def test_a_catalog_that_is_away_leaves_nothing() -> None:
    lake = lake_of_open(Settings(inline_commit_bytes_max=10))
    staged = staged_append(lake, 1)

    def away() -> None:
        raise Unavailable("the catalog is away")

    when(lake, "ratify", away)
    with pytest.raises(Unavailable):
        ask(lake, staged)
    assert [one.path for one in lake.store("a").list(STAGED_FOLDER)] == [
        f"{STAGED_FOLDER}/{staged.name}"
    ]
    assert isinstance(ask(lake, staged), Accepted)


def test_one_that_cannot_be_published_stands() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    lake.fake("a").failing.add(commit_path(1))
    found = ask(lake, staged)
    assert isinstance(found, Accepted)
    assert not found.is_published
    lake.fake("a").failing.clear()
    assert paths(lake, "a") == ["x"]
    assert lake.fake("a").get(commit_path(1))


def test_another_engine_gives_its_rows_their_ids() -> None:
    """What txlake alone writes into its own commits comes whole from others."""
    lake = LakeOf()
    beginning = lake.begin()
    beginning.create("a", metadata({"delta.enableRowTracking": "true"}), opens=True)
    beginning.commit()
    file = add("x", stats='{"numRecords":2}', base_row_id=0, default_row_commit_version=1)
    mark = DomainMetadata(
        domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":1}', removed=False
    )
    staged = stage(lake.store("a"), 1, now_ms(lake), file, mark)
    found = ask(lake, staged)
    assert isinstance(found, Accepted), found
    assert found.snapshot.row_id_high_water_mark == 1


def staged_files(lake: LakeOf, name: str = "a") -> int:
    """How many files are staged."""
    return len(list(lake.store(name).list(STAGED_FOLDER)))


LARGE = Settings(inline_commit_bytes_max=10)


def test_a_large_commit_is_ratified_by_its_file() -> None:
    lake = lake_of_open(LARGE)
    staged = staged_append(lake, 1)
    seen: list[int] = []
    when(lake, "ratify", lambda: seen.append(staged_files(lake)))
    lake.fake("a").failing.add(commit_path(1))
    assert isinstance(ask(lake, staged), Accepted)
    assert seen == [2]
    lake.fake("a").failing.clear()
    assert paths(lake, "a") == ["x"]


def test_what_may_have_been_ratified_keeps_its_file() -> None:
    lake = lake_of_open(LARGE)
    staged = staged_append(lake, 1)

    def lose() -> None:
        raise OutcomeUnknown("the reply was lost")

    when(lake, "ratify done", lose)
    with pytest.raises(OutcomeUnknown):
        ask(lake, staged)
    assert paths(lake, "a") == ["x"]


def test_what_was_not_ratified_leaves_no_file() -> None:
    lake = lake_of_open(LARGE)
    staged = staged_append(lake, 1)
    before = staged_files(lake)
    lake.ledger.reserve("another", ["a"])
    assert isinstance(ask(lake, staged), Busy)
    assert staged_files(lake) == before
    lake.ledger.reserved.clear()
    when(lake, "ratify", lambda: lake.append("a", add("ours")))
    assert isinstance(ask(lake, staged), Overtaken)
    assert staged_files(lake) == before


def test_a_version_that_is_too_high_is_told_before_it_is_judged() -> None:
    lake = lake_of_open()
    assert ask(lake, stage(lake.store("a"), 2, 1, add("x"))) == Overtaken(0)


def test_a_file_that_goes_while_it_is_read() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    name = f"{STAGED_FOLDER}/{staged.name}"
    store = lake.fake("a")
    get = store.get

    def gone(path: str) -> bytes:
        if path == name:
            raise FileNotFoundError(path)
        return get(path)

    store.get = gone  # type: ignore[method-assign]
    with pytest.raises(InvalidRequest, match="there is no staged commit"):
        ask(lake, staged)


@pytest.mark.no_interop("the log's beginning was cleaned up")
def test_one_of_a_version_that_was_cleaned_up_comes_too_late() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    assert isinstance(ask(lake, staged), Accepted)
    lake.append("a", add("y"))
    log = lake.open("a")
    write_checkpoint(log, log.latest())
    del lake.fake("a").files[commit_path(1)]
    assert ask(lake, staged) == Overtaken(2)


@pytest.mark.parametrize("info", [(), (CommitInfo({"operation": "WRITE"}),)])
def test_a_version_that_says_nothing_of_itself_is_nobodys_resent_one(
    info: tuple[CommitInfo, ...],
) -> None:
    lake = lake_of_open()
    content = encode_actions([*info, add("x")])
    kept = TableCommit(table_id="a", version=1, content=content)
    lake.ledger.ratify(Ratification(transaction_id="it", commits=(kept,), unchanged={}))
    name = f"{1:020d}.00000000-0000-4000-8000-000000000000.json"
    lake.store("a").put(f"{STAGED_FOLDER}/{name}", content)
    again = StagedFile(version=1, name=name, timestamp_ms=1, size_bytes=len(content))
    assert ask(lake, again) == Overtaken(1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            DomainMetadata(domain=DOMAIN, configuration="{}", removed=False),
            f"domain '{DOMAIN}', which is the catalog's",
        ),
        ({TABLE_ID: "another"}, f"property '{TABLE_ID}', which is the catalog's"),
    ],
)
def test_who_holds_the_table_is_not_the_writers_to_say(
    changed: DomainMetadata | dict[str, str], reason: str
) -> None:
    lake = lake_of_open()
    now = lake.open("a").latest().metadata
    action = (
        changed
        if isinstance(changed, DomainMetadata)
        else replace_fields(now, configuration={**now.configuration, **changed})
    )
    found = ask(lake, stage(lake.store("a"), 1, now_ms(lake), action))
    assert isinstance(found, Refused)
    assert reason in found.reason


def test_nothing_follows_in_a_log_that_is_ahead_of_the_catalog() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    theirs = (encode_actions([add("theirs")]), 1)
    log = lake.open("a")
    look = log.latest
    looked: list[Snapshot] = []

    def then_it_comes() -> Snapshot:
        looked.append(look())
        lake.fake("a").files[commit_path(1)] = theirs
        return looked[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableLog, "latest", lambda _: look() if looked else then_it_comes())
        with pytest.raises(CorruptTable, match=r"recover\(\) brings the catalog up"):
            commit_foreign(log, staged, transaction_id="it", bytes_max=MAX)
    assert lake.ledger.tables["a"].head == 0


def test_nothing_follows_a_version_whose_file_was_removed() -> None:
    lake = lake_of_open()
    staged = staged_append(lake, 1)
    log = lake.open("a")
    log.latest()
    del lake.fake("a").files[commit_path(0)]
    with pytest.raises(CorruptTable, match=r"published version 0, .*0\.json isn't there"):
        commit_foreign(log, staged, transaction_id="it", bytes_max=MAX)
    assert lake.ledger.tables["a"].head == 0


def test_a_commit_takes_its_turn_among_the_threads_of_the_server() -> None:
    lake = lake_of_open(Settings(retry=RetrySettings(queue_ms_max=0)))
    log = lake.open("a")
    free: list[bool] = []

    def looking() -> None:
        with log.turn() as is_mine:
            free.append(is_mine)

    when(lake, "ratify", looking)
    commit_foreign(log, staged_append(lake, 1), transaction_id="it", bytes_max=MAX)
    assert free == [False]


def test_a_checkpoint_comes_when_its_turn_has_come_and_the_version_is_there() -> None:
    every = {"delta.checkpointInterval": "1"}
    for fails in (False, True):
        lake = LakeOf().create("a", configuration=every, opens=True)
        if fails:
            lake.fake("a").failing.add(commit_path(1))
        assert isinstance(ask(lake, staged_append(lake, 1)), Accepted)
        checkpoints = [path for path in lake.fake("a").files if ".checkpoint." in path]
        assert bool(checkpoints) is not fails


def test_who_uses_the_log_next_meets_the_file_that_took_the_version() -> None:
    lake = lake_of_open()
    log = lake.open("a")

    def intrude() -> None:
        lake.store("a").put(commit_path(1), encode_actions([add("theirs")]))

    when(lake, "ratify done", intrude)
    found = commit_foreign(log, staged_append(lake, 1), transaction_id="it", bytes_max=MAX)
    assert isinstance(found, Accepted)
    assert not found.is_published
    with pytest.raises(CorruptTable, match="holds another commit"):
        log.at_sequence(lake.ledger.sequence())


def test_the_server_knows_what_it_committed_published_or_not() -> None:
    for fails in (False, True):
        lake = lake_of_open()
        log, staged = lake.open("a"), staged_append(lake, 1)
        if fails:
            lake.fake("a").failing.add(commit_path(1))
        commit_foreign(log, staged, transaction_id="it", bytes_max=MAX)
        assert log.newest_known == 1


def test_a_staged_file_that_cannot_be_deleted_changes_no_answer() -> None:
    lake = lake_of_open(LARGE)
    staged = staged_append(lake, 1)

    def away(paths: Iterable[str]) -> None:
        raise Unavailable(f"{list(paths)}: the store is away")

    def others_come_first() -> None:
        lake.append("a", add("ours"))
        lake.fake("a").delete = away  # type: ignore[method-assign]

    when(lake, "ratify", others_come_first)
    assert ask(lake, staged) == Overtaken(1)


def together(
    lake: LakeOf, *names: str, unchanged: Mapping[str, int] | None = None
) -> Sequence[Accepted | AlreadyCommitted] | Rejected:
    """An append to each of these tables, at one instant."""
    asked = [
        CommitRequest(lake.open(name), stage(lake.store(name), 1, now_ms(lake), add(f"{name}1")))
        for name in names
    ]
    return commit_foreign_together(
        asked, unchanged or {}, transaction_id=lake.system.new_id(), bytes_max=MAX
    )


def test_of_several_the_table_is_named_that_moved() -> None:
    lake = LakeOf().create("a", "b", opens=True)
    when(lake, "ratify", lambda: lake.append("b", add("ours")))
    assert together(lake, "a", "b") == Rejected({"b": Overtaken(1)})
    assert (paths(lake, "a"), paths(lake, "b")) == ([], ["ours"])


def test_of_several_that_were_read_the_one_is_named_that_moved() -> None:
    lake = LakeOf().create("a", "b", "c", opens=True)
    lake.append("c", add("ours"))
    assert together(lake, "a", unchanged={"b": 0, "c": 0}) == Rejected({"c": Overtaken(1)})
    assert paths(lake, "a") == []
