"""Many tables in one ratification: who is asked in which order, who wins, and how it ends."""

from __future__ import annotations

import pytest

from tests.commit.lake_of import (
    BOTH,
    LakeOf,
    LakeTransaction,
    lake_of,
    paths,
    when,
    write_both,
)
from tests.commit.log_of import add, metadata
from txlake.commit.membership import DETACH, detach_actions
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.footprint import ReadKind
from txlake.conflict.levels import Level
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    Conflict,
    InvalidRequest,
    MetadataChangedException,
    ProtocolChangedException,
    SerializableIsolationViolation,
    Unavailable,
)
from txlake.ports import DroppedTable, RenamedTable
from txlake.protocol.actions import CommitInfo, decode_actions
from txlake.protocol.file_names import STAGED_FOLDER, commit_path
from txlake.settings import RetrySettings, Settings


def remove_from(tx: LakeTransaction, name: str, path: str) -> None:
    table = tx.table(name)
    file = table.base.files.get((path, None))
    assert file is not None
    table.stage([file.tombstone(timestamp_ms=1)], operation="DELETE")


# --- what becomes true ----------------------------------------------------------------------------


def test_two_tables_at_one_instant() -> None:
    lake = lake_of()
    before = lake.ledger.sequence()
    outcome = write_both(lake).commit()
    assert (outcome.sequence, outcome.attempts) == (before + 1, 1)
    assert {name: one.version for name, one in outcome.tables.items()} == {"a": 1, "b": 1}
    for name in BOTH:
        assert paths(lake, name) == [f"{name}1"]
        assert [one.path for one in lake.plain(name).latest().files.adds()] == [f"{name}1"]
        assert lake.ledger.tables[name].published == 1
        assert outcome.tables[name].snapshot.version == 1


def test_the_commits_of_a_transaction_have_its_id() -> None:
    lake = lake_of()
    tx = write_both(lake)
    tx.commit()
    for name in BOTH:
        info = lake.plain(name).commit_info(1)
        assert info is not None
        assert info.text("txnId") == tx.id
        assert info.values["isBlindAppend"] is True


def test_nothing_to_commit_asks_nothing() -> None:
    lake = lake_of()
    tx = lake.begin(Level.SERIALIZABLE)
    tx.table("a").plain_read()
    tx.table("b").read()
    lake.append("a", add("x"))
    lake.ledger.requests.clear()
    outcome = tx.commit()
    assert (outcome.sequence, outcome.attempts, outcome.tables["a"].version) == (None, 0, 0)
    assert lake.ledger.requests == []


def test_names_alone_are_ratified() -> None:
    lake = lake_of()
    tx = lake.begin()
    tx.names += [DroppedTable(id="a"), RenamedTable(id="b", database="db", name="c")]
    assert tx.commit().sequence == 2
    assert lake.open("a").latest_or_none() is None
    assert lake.ledger.tables["b"].name == "db.c"


def test_a_name_that_is_taken_leaves_nothing() -> None:
    lake = lake_of()
    tx = write_both(lake)
    tx.names.append(RenamedTable(id="a", database="db", name="b"))
    files = {name: sorted(lake.fake(name).files) for name in BOTH}
    with pytest.raises(InvalidRequest, match=r"db\.b exists"):
        tx.commit()
    assert {name: sorted(lake.fake(name).files) for name in BOTH} == files


def test_a_table_is_created_and_written_at_once() -> None:
    lake = lake_of("a")
    tx = lake.begin()
    tx.table("a").stage([add("a1")], operation="WRITE")
    tx.create("b", metadata()).stage([add("b1")], operation="WRITE")
    outcome = tx.commit()
    assert {name: one.version for name, one in outcome.tables.items()} == {"a": 1, "b": 0}
    assert paths(lake, "b") == ["b1"]


def test_a_path_table_cant_be_part_of_it() -> None:
    lake = lake_of()
    tx = write_both(lake)
    tx.table("a").log.catalog_table = None
    with pytest.raises(InvalidRequest, match=r"^a: a path table can't be part"):
        tx.commit()


def detach(lake: LakeOf, name: str) -> None:
    tx = lake.begin()
    table = tx.table(name)
    table.stage(detach_actions(table.base), operation=DETACH)
    tx.commit()


def test_a_detached_table_is_no_part_of_it() -> None:
    lake = lake_of()
    tx = write_both(lake)
    detach(lake, "a")
    with pytest.raises(ProtocolChangedException, match="dropped the table features"):
        tx.commit()
    tx = write_both(lake)
    with pytest.raises(InvalidRequest, match=r"^a: version 1 isn't held .* The table was detached"):
        tx.commit()
    assert paths(lake, "b") == []
    committing = TableTransaction(lake.plain("a"), lake.plain("a").latest())
    committing.stage([add("x")], operation="WRITE")
    assert committing.commit().version == 2


def test_two_parts_of_one_table_are_refused() -> None:
    lake = lake_of()
    tx = write_both(lake)
    tx.tables["c"] = TableTransaction(lake.open("a"), lake.open("a").latest())
    with pytest.raises(InvalidRequest, match="found two for one"):
        tx.commit()


# --- others come first ----------------------------------------------------------------------------


def test_a_winner_on_one_table_is_followed_and_both_are_ratified() -> None:
    lake = lake_of()
    tx = write_both(lake)
    lake.append("a", add("x"))
    outcome = tx.commit()
    assert outcome.attempts == 2
    assert {name: one.version for name, one in outcome.tables.items()} == {"a": 2, "b": 1}
    assert {name: one.rebased_over for name, one in outcome.tables.items()} == {"a": (1,), "b": ()}
    assert paths(lake, "a") == ["a1", "x"]
    info = decode_actions(lake.fake("a").files[commit_path(2)][0], file="a")[0]
    assert isinstance(info, CommitInfo)
    assert info.values["operationMetrics"] == {"numRebasedCommits": "1", "numCommitRetries": "1"}


def test_what_this_process_knows_is_followed_before_the_first_attempt() -> None:
    lake = lake_of()
    tx = write_both(lake)
    lake.append("a", add("x"))
    tx.table("a").log.latest()
    assert tx.commit().attempts == 1


def test_a_conflict_on_one_table_commits_none() -> None:
    lake = lake_of()
    lake.append("b", add("shared"))
    first, second = lake.begin(), lake.begin()
    for tx, new in ((first, "a1"), (second, "a2")):
        tx.table("a").stage([add(new)], operation="WRITE")
        remove_from(tx, "b", "shared")
    first.commit()
    heads = {name: lake.ledger.tables[name].head for name in BOTH}
    with pytest.raises(ConcurrentDeleteDeleteException) as caught:
        second.commit()
    assert caught.value.evidence is not None
    assert caught.value.evidence.table == "b"
    assert str(caught.value).startswith("b: this transaction read version 1; since then version 2")
    assert {name: lake.ledger.tables[name].head for name in BOTH} == heads


def test_waits_grow_and_attempts_are_bounded() -> None:
    retry = RetrySettings(commit_attempts_max=4, wait_ms_min=10, wait_ms_max=60, reserve_after=10)
    lake = lake_of(settings=Settings(retry=retry))
    tx = write_both(lake)
    waits: list[float] = []
    object.__setattr__(lake.system, "wait_ms", waits.append)
    when(lake, "ratify", *[lambda n=n: lake.append("a", add(f"x{n}")) for n in range(9)])
    with pytest.raises(Unavailable, match=r"4 attempts .* a at version 4, b at version 0; nothing"):
        tx.commit()
    assert waits == [20, 30, 30]
    assert paths(lake, "b") == []


def test_after_so_many_losses_the_turn_is_reserved() -> None:
    lake = lake_of(settings=Settings(retry=RetrySettings(reserve_after=2)))
    tx = write_both(lake)
    reserved: list[dict[str, str]] = []

    def win(number: int) -> None:
        reserved.append(dict(lake.ledger.reserved))
        if not lake.ledger.reserved:
            lake.append("a", add(f"x{number}"))

    when(lake, "ratify", *[lambda n=n: win(n) for n in range(5)])
    outcome = tx.commit()
    assert outcome.attempts == 3
    assert reserved == [{}, {}, {"a": tx.id, "b": tx.id}]
    assert lake.ledger.reserved == {}


def test_who_meets_a_reservation_waits_for_its_end() -> None:
    lake = lake_of()
    tx = write_both(lake)
    assert lake.ledger.reserve("other", ["b"])
    when(lake, "head", lambda: lake.ledger.end("other"))
    outcome = tx.commit()
    assert outcome.attempts == 2
    assert lake.clock.time_ms > 0
    assert paths(lake, "b") == ["b1"]


def test_a_reservation_that_another_has_is_asked_for_again() -> None:
    lake = lake_of(settings=Settings(retry=RetrySettings(reserve_after=1)))
    tx = write_both(lake)
    lake.append("a", add("x1"))
    asked: list[str] = []

    def hook(moment: str) -> None:
        asked.append(moment)
        match moment, asked.count(moment):
            case "reserve", 1:
                lake.ledger.reserved["b"] = "other"
            case "ratify", 3:
                lake.ledger.end("other")
                lake.ledger.hook = lambda _: None
                lake.append("a", add("x2"))
                lake.ledger.hook = hook

    lake.ledger.hook = hook
    # Lost, refused the turn, met the other's turn, lost again, had the turn.
    assert tx.commit().attempts == 4
    assert [moment for moment in asked if moment.startswith("reserve")] == [
        "reserve",
        "reserve",
        "reserve done",
    ]


# --- what was read elsewhere ----------------------------------------------------------------------


def skewed(level: Level, *, plain: bool) -> tuple[LakeTransaction, LakeTransaction]:
    """Each reads the table that the other writes."""
    lake = lake_of()
    pair = lake.begin(level), lake.begin(level)
    for tx, reads, writes in ((pair[0], "a", "b"), (pair[1], "b", "a")):
        table = tx.table(reads)
        table.plain_read(text="1") if plain else table.read(text="1")
        tx.table(writes).read(text="0")  # so that neither is a blind append
        tx.table(writes).stage([add(writes)], operation="WRITE")
    return pair


@pytest.mark.parametrize(
    ("level", "plain", "error"),
    [
        (Level.SERIALIZABLE, True, SerializableIsolationViolation),
        (Level.SERIALIZABLE, False, ConcurrentAppendException),
        (Level.WRITE_SERIALIZABLE, True, None),
        (Level.WRITE_SERIALIZABLE, False, ConcurrentAppendException),
        (Level.SNAPSHOT, True, None),
        (Level.SNAPSHOT, False, None),
    ],
)
def test_write_skew_over_two_tables(
    level: Level, plain: bool, error: type[Conflict] | None
) -> None:
    first, second = skewed(level, plain=plain)
    first.commit()
    if error is None:
        second.commit()
        return
    with pytest.raises(error, match=r"^b: ") as caught:
        second.commit()
    assert caught.value.evidence is not None
    assert caught.value.evidence.table == "b"


def test_what_was_read_for_a_write_is_exempt_from_blind_appends_as_on_one_table() -> None:
    lake = lake_of()
    for level, error in ((Level.WRITE_SERIALIZABLE, None), (Level.SERIALIZABLE, Conflict)):
        tx = lake.begin(level)
        tx.table("b").read()
        tx.table("a").stage([add(f"a-{level.value}")], operation="WRITE")
        lake.append("b", add(f"x-{level.value}"))
        if error is None:
            tx.commit()
        else:
            with pytest.raises(ConcurrentAppendException):
                tx.commit()


def copied(lake: LakeOf, *reads: str, plain: bool = False) -> None:
    """Another appends to b what it read elsewhere."""
    other = lake.begin()
    for name in reads:
        other.table(name).plain_read() if plain else other.table(name).read()
    other.table("b").stage([add("x")], operation="WRITE")
    other.commit()


@pytest.mark.parametrize(
    ("reads", "writes", "level", "error"),
    [
        (["a"], "a", Level.WRITE_SERIALIZABLE, ConcurrentAppendException),
        (["a", "c"], "a", Level.WRITE_SERIALIZABLE, ConcurrentAppendException),
        (["c"], "a", Level.WRITE_SERIALIZABLE, None),
        ([], "a", Level.WRITE_SERIALIZABLE, None),
        (["b"], "a", Level.WRITE_SERIALIZABLE, ConcurrentAppendException),
        (["a"], "b", Level.WRITE_SERIALIZABLE, None),
        (["a"], "b", Level.SERIALIZABLE, ConcurrentAppendException),
        (["a"], "a", Level.SNAPSHOT, None),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_who_missed_an_append_of_what_was_read_elsewhere(
    reads: list[str], writes: str, level: Level, error: type[Conflict] | None, plain: bool
) -> None:
    """Which comes first here; it can't come second where it changes what the append had read."""
    lake = lake_of("a", "b", "c")
    tx = lake.begin(level)
    tx.table("b").read()
    tx.table(writes).stage([add("y")], operation="WRITE")
    copied(lake, *reads, plain=plain)
    info = lake.plain("b").commit_info(1)
    assert info is not None
    assert info.values["isBlindAppend"] is ("b" not in reads)
    if error is None:
        tx.commit()
    else:
        with pytest.raises(error, match=r"^b: "):
            tx.commit()


@pytest.mark.parametrize(("gone", "reads"), [(False, "a"), (True, ""), (True, "a")])
def test_who_drops_tables_comes_after_all_that_read_elsewhere(gone: bool, reads: str) -> None:
    lake = lake_of("a", "b", "c")
    tx = lake.begin()
    tx.table("b").read()
    tx.table("b").stage([add("y")], operation="WRITE")
    if gone:
        tx.names.append(DroppedTable(id="c"))
    copied(lake, *reads)
    if gone and reads:
        with pytest.raises(ConcurrentAppendException, match=r"^b: "):
            tx.commit()
    else:
        tx.commit()


def test_a_read_tables_head_is_part_of_the_ratification() -> None:
    lake = lake_of()
    tx = lake.begin(Level.SERIALIZABLE)
    tx.table("b").plain_read()
    tx.table("a").stage([add("a1")], operation="WRITE")
    when(lake, "ratify", lambda: lake.append("b", add("x")))
    with pytest.raises(SerializableIsolationViolation) as caught:
        tx.commit()
    assert 1023 in caught.value.codes
    assert paths(lake, "a") == []


def test_a_read_that_still_holds_follows_its_winners() -> None:
    lake = LakeOf().create(*BOTH)
    tx = lake.begin(Level.SERIALIZABLE)
    tx.read("b", "id > 100", plain=True)
    tx.table("a").stage([add("a1")], operation="WRITE")
    bounds = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'
    lake.append("b", add("x", stats=bounds))
    outcome = tx.commit()
    assert outcome.tables["b"].rebased_over == (1,)
    assert outcome.tables["b"].version == 1


def test_a_select_that_isnt_true_any_more_is_told_first() -> None:
    lake = lake_of()
    lake.append("a", add("shared"))
    tx = lake.begin(Level.SERIALIZABLE)
    remove_from(tx, "a", "shared")  # a conflict of its own, and of the first table
    tx.table("b").plain_read()
    other = lake.begin()
    remove_from(other, "a", "shared")
    other.table("b").stage([add("x")], operation="WRITE")
    other.commit()
    with pytest.raises(SerializableIsolationViolation) as caught:
        tx.commit()
    assert caught.value.evidence is not None
    assert caught.value.evidence.table == "b"


@pytest.mark.parametrize("order", [BOTH, BOTH[::-1]])
def test_of_several_conflicts_the_first_tables_is_told(order: tuple[str, str]) -> None:
    lake = lake_of()
    for name in BOTH:
        lake.append(name, add("shared"))
    first, second = lake.begin(), lake.begin()
    for tx in (first, second):
        for name in order:
            remove_from(tx, name, "shared")
    first.commit()
    with pytest.raises(ConcurrentDeleteDeleteException, match=r"^a: "):
        second.commit()


def test_what_was_read_matters_to_a_transaction_that_changes_data_alone() -> None:
    lake = lake_of()
    tx = lake.begin(Level.SERIALIZABLE)
    tx.table("b").plain_read()
    tx.table("a").stage([metadata({"delta.appendOnly": "false"})], operation="SET")
    lake.append("b", add("x"))
    assert tx.commit().tables["a"].version == 1


def test_a_guard_on_another_table_holds_at_every_level() -> None:
    lake = lake_of()
    for level in Level:
        tx = lake.begin(level)
        tx.table("b").read(kind=ReadKind.GUARD)
        tx.table("a").stage([metadata({"delta.appendOnly": "false"})], operation="SET")
        lake.append("b", add(f"x-{level.value}"))
        with pytest.raises(ConcurrentAppendException, match=r"^b: "):
            tx.commit()


def test_a_table_that_was_read_and_altered_meanwhile() -> None:
    lake = lake_of()
    tx = lake.begin()
    tx.table("b").read()
    tx.table("a").stage([add("a1")], operation="WRITE")
    other = lake.begin()
    other.table("b").stage([metadata({"delta.appendOnly": "true"})], operation="SET")
    other.commit()
    with pytest.raises(MetadataChangedException, match=r"^b: "):
        tx.commit()


def test_two_that_read_a_table_of_granularity_table_dont_conflict_on_it() -> None:
    lake = LakeOf().create(*BOTH, configuration={"txlake.conflictGranularity": "table"})
    tx = lake.begin()
    tx.read("b", "id > 100")
    tx.table("a").stage([add("a1")], operation="WRITE")
    other = lake.begin()
    other.read("b", "id > 100")
    bounds = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'
    other.table("b").stage([add("x", stats=bounds)], operation="WRITE")
    other.commit()
    assert tx.commit().tables["a"].version == 1


def test_what_is_ratified_of_an_open_table_is_where_others_look_for_it() -> None:
    lake = LakeOf().create("a", opens=True)
    seen: list[int] = []
    when(lake, "ratify", lambda: seen.append(len(list(lake.store("a").list(STAGED_FOLDER)))))
    lake.append("a", add("x"))
    assert seen == [1]
