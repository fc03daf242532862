"""A catalog table's log: what its ledger has ratified, published or not, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.commit.lake_of import LakeOf, when
from tests.commit.log_of import DAY, FakeStore, add, metadata
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.log_cleanup import clean_log
from txlake.commit.table_log import TableLog
from txlake.commit.vacuum import vacuum
from txlake.errors import CorruptTable, InvalidRequest, MetadataChangedException, Unavailable
from txlake.ports import Head, PutOutcome, StoredObject
from txlake.protocol.actions import CommitInfo, encode_actions
from txlake.protocol.file_names import commit_path, log_path, parse_name
from txlake.settings import Settings

INTRUDER = encode_actions([CommitInfo({"operation": "INTRUDE"}), add("intruder")])


def lake_of(*files: str, settings: Settings | None = None) -> LakeOf:
    """A table `a` with a version a file."""
    lake = LakeOf(settings).create("a")
    for file in files:
        lake.clock.time_ms += 1_000
        lake.append("a", add(file))
    return lake


def unpublished(lake: LakeOf, *files: str) -> None:
    """Versions with these files that their committer could not publish."""
    store, put = lake.fake("a"), lake.fake("a").put_if_absent

    def refused(path: str, data: bytes) -> PutOutcome:
        raise Unavailable(f"{path}: away")

    store.put_if_absent = refused  # type: ignore[method-assign]
    for file in files:
        lake.clock.time_ms += 1_000
        lake.append("a", add(file))
    store.put_if_absent = put  # type: ignore[method-assign]


def names(log: TableLog, version: int | None = None) -> list[str]:
    return sorted(file.path for file in log.snapshot(version).files.adds())


def commits_of(store: FakeStore) -> list[str]:
    return [path for path in sorted(store.files) if path.endswith(".json")]


def test_at_the_head_a_snapshot_costs_one_request_to_the_ledger_and_one_to_the_store() -> None:
    lake = lake_of("x")
    log = lake.open("a")
    first = log.latest()
    lake.ledger.requests.clear()
    lake.fake("a").requests.clear()
    assert log.latest() is first
    assert lake.ledger.requests == ["head"]
    assert lake.fake("a").requests == [("head", commit_path(2))]


def test_the_commits_of_others_are_followed() -> None:
    lake = lake_of()
    log = lake.open("a")
    for number in range(3):
        lake.append("a", add(f"x{number}"))
        assert log.latest().version == number + 1
    assert names(log) == ["x0", "x1", "x2"]


def ways_to_read(log: TableLog) -> list[Callable[[], object]]:
    return [
        log.latest,
        log.exists,
        log.history,
        log.listing,
        lambda: log.snapshot(2),
        lambda: log.commit(2),
        lambda: log.commit_info(2),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_a_log_that_is_ahead_of_the_catalog_is_refused(version: int) -> None:
    for way in range(len(ways_to_read(lake_of().open("a")))):
        lake = lake_of("x")
        fresh, known = lake.open("a"), lake.open("a")
        known.latest()
        for added in range(2, version + 1):
            lake.fake("a").files[commit_path(added)] = (INTRUDER, lake.clock.now_ms())
        for log in (fresh, known):
            with pytest.raises(
                CorruptTable, match=r"^a: the lake's catalog has it at version 1, .* lake\.recover"
            ):
                ways_to_read(log)[way]()


@pytest.mark.no_interop("the log is ahead of the catalog on purpose")
def test_a_log_whose_oldest_versions_are_gone_is_ahead_too() -> None:
    lake = lake_of(*(f"x{number}" for number in range(12)))
    store = lake.fake("a")
    write_checkpoint(lake.open("a"), lake.open("a").latest())
    for version in range(12):
        del store.files[commit_path(version)]
    lake.ledger.tables["a"].head = lake.ledger.tables["a"].published = 3
    with pytest.raises(CorruptTable, match=r"at version 3, and there is .*12\.json"):
        lake.open("a").latest()


def test_a_catalog_that_went_back_in_time_is_refused() -> None:
    lake = lake_of("x", "y")
    log = lake.open("a")
    log.latest()
    del lake.fake("a").files[commit_path(2)]  # it was never published
    lake.ledger.tables["a"].head = 1
    with pytest.raises(CorruptTable, match=r"at version 1, and there is .*2\.json"):
        log.latest()


def test_nothing_is_committed_onto_a_log_that_is_ahead() -> None:
    lake = lake_of("x")
    tx = lake.begin()
    tx.table("a").stage([add("y")], operation="WRITE")
    lake.fake("a").files[commit_path(2)] = (INTRUDER, lake.clock.now_ms())
    before = dict(lake.fake("a").files)
    with pytest.raises(CorruptTable, match=r"lake\.recover"):
        tx.commit()
    assert lake.ledger.tables["a"].head == 1
    assert lake.fake("a").files == before


def test_a_new_table_does_not_begin_in_anothers_log() -> None:
    lake = lake_of()
    tx = lake.begin()
    tx.create("c", metadata())
    lake.fake("c").files[commit_path(0)] = (INTRUDER, lake.clock.now_ms())
    with pytest.raises(InvalidRequest, match=r"0\.json exists already"):
        tx.commit()
    assert "c" not in lake.ledger.tables


def test_an_instant_isnt_read_from_what_is_known_when_the_log_is_ahead() -> None:
    lake = lake_of("x")
    log, sequence = lake.open("a"), lake.ledger.sequence()
    log.latest()
    lake.fake("a").files[commit_path(2)] = (INTRUDER, lake.clock.now_ms())
    with pytest.raises(CorruptTable, match=r"lake\.recover"):
        log.at_sequence(sequence)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_log_that_ends_before_the_catalog_is_refused(is_known: bool) -> None:
    lake = lake_of("x", "y", "z")
    log = lake.open("a")
    if is_known:
        log.snapshot(1)
    for version in (2, 3):
        del lake.fake("a").files[commit_path(version)]
    if is_known:
        log.forget()
    with pytest.raises(CorruptTable, match=r"published version 3, .*3\.json isn't there"):
        log.latest()


def test_a_listing_that_lags_is_no_log_that_ends_early() -> None:
    lake = lake_of("x", "y")
    store, listed = lake.fake("a"), lake.fake("a").list
    store.list = lambda prefix, start_after=None, before=None: (  # type: ignore[method-assign]
        one for one in listed(prefix, start_after, before) if "2.json" not in one.path
    )
    with pytest.raises(InvalidRequest, match="version 2 doesn't exist"):
        lake.open("a").snapshot(2)


def test_what_others_commit_while_one_looks_is_not_ahead() -> None:
    lake = lake_of("x")
    log, store = lake.open("a"), lake.fake("a")
    log.latest()
    head, listed, left = store.head, store.list, ["z", "y"]

    def meanwhile(path: str) -> StoredObject | None:
        store.head = head  # type: ignore[method-assign]
        lake.append("a", add(left.pop()))
        return head(path)

    def meanwhile_too(
        prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        store.list = listed  # type: ignore[method-assign]
        lake.append("a", add(left.pop()))
        return listed(prefix, start_after, before)

    store.head = meanwhile  # type: ignore[method-assign]
    store.list = meanwhile_too  # type: ignore[method-assign]
    assert log.latest().version == 3
    assert not left


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000002.crc",
        "00000000000000000000.00000000000000000002.compacted.json",
    ],
)
def test_no_file_of_a_version_beyond_the_head_is_used(name: str) -> None:
    lake = lake_of("x")
    assert parse_name(name) is not None
    lake.fake("a").files[f"_delta_log/{name}"] = (b"nonsense", lake.clock.now_ms())
    assert names(lake.open("a")) == ["x"]


def test_another_writers_bytes_at_a_ratified_version_are_told() -> None:
    lake = lake_of()
    store = lake.fake("a")
    tx = lake.begin()
    tx.table("a").stage([add("x")], operation="WRITE")

    def intrude() -> None:
        store.files[commit_path(1)] = (INTRUDER, lake.clock.now_ms())

    when(lake, "ratify done", intrude)
    made = tx.commit()  # committed all the same, and told
    assert made.sequence == 2
    assert made.occupied is not None
    for _ in range(2):
        with pytest.raises(
            CorruptTable,
            match=r"^a: _delta_log/0{19}1\.json holds another commit .* as version 1: ",
        ):
            lake.open("a").latest()
    del store.files[commit_path(1)]
    assert names(lake.open("a")) == ["x"]


def test_what_isnt_published_is_published_by_whom_it_meets() -> None:
    lake = lake_of("x")
    unpublished(lake, "y", "z")
    store = lake.fake("a")
    assert commits_of(store) == [commit_path(0), commit_path(1)]
    known = lake.open("a")
    store.requests.clear()
    assert names(known) == ["x", "y", "z"]
    puts = [path for kind, path in store.requests if kind == "put_if_absent"]
    assert puts == [commit_path(2), commit_path(3)]
    assert lake.ledger.tables["a"].published == 3
    assert [file.path for file in lake.plain("a").latest().files.adds()] == ["x", "y", "z"]


def test_published_bytes_are_those_that_were_ratified() -> None:
    lake = lake_of("x")
    unpublished(lake, "y")
    lake.open("a").exists()
    ratified = lake.ledger.tables["a"].commits
    for version in (1, 2):
        assert lake.fake("a").files[commit_path(version)][0] == ratified[version].content


class ReadOnly(FakeStore):
    """A store that lets nobody write."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise InvalidRequest(f"{path}: read-only")

    def put(self, path: str, data: bytes) -> None:
        raise InvalidRequest(f"{path}: read-only")


@pytest.mark.parametrize("inline_bytes_max", [1024, 0])
def test_who_cant_write_reads_from_the_ledger(inline_bytes_max: int) -> None:
    lake = lake_of("x", settings=Settings(inline_commit_bytes_max=inline_bytes_max))
    unpublished(lake, "y", "z")
    store = ReadOnly(lake.clock, "memory://a")
    store.files = lake.fake("a").files
    before = dict(store.files)
    log = lake.open("a", store=store)
    assert names(log) == ["x", "y", "z"]
    assert log.latest() is log.latest()
    assert [row["version"] for row in log.history()] == [3, 2, 1, 0]
    for version, expected in ((0, []), (1, ["x"]), (2, ["x", "y"]), (3, ["x", "y", "z"])):
        assert names(lake.open("a", store=store), version) == expected
        assert log.snapshot(timestamp_ms=_time(log, version)).version == version
    commit = log.commit(3)
    assert commit is not None
    assert commit.timestamp_ms == _time(log, 3)
    assert store.files == before


def _time(log: TableLog, version: int) -> int:
    row = next(row for row in log.history() if row["version"] == version)
    assert isinstance(row["timestamp"], int)
    return row["timestamp"]


def test_who_opened_before_the_publication_reads_what_it_left() -> None:
    lake = lake_of(settings=Settings(inline_commit_bytes_max=0))
    unpublished(lake, "x")
    store = ReadOnly(lake.clock, "memory://a")
    store.files = lake.fake("a").files
    log = lake.open("a", store=store)
    assert log.exists()  # it knows the staged commit, and then another publishes and deletes it
    lake.open("a").latest()
    assert log.commit(1) is not None
    log = lake.open("a", store=store)
    when = lake.ledger.head("a")
    assert when is not None
    assert when.pending == ()
    assert names(log) == ["x"]


def test_a_publication_that_another_finished_first_is_finished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lake = lake_of(settings=Settings(inline_commit_bytes_max=0))
    unpublished(lake, "x")
    ask = lake.ledger.head

    def slow(table_id: str) -> Head | None:
        lake.ledger.head = ask  # type: ignore[method-assign]
        answer = ask(table_id)
        assert lake.open("a").exists()  # it publishes, and deletes what was staged
        return answer

    lake.ledger.head = slow  # type: ignore[method-assign]
    caplog.clear()
    assert names(lake.open("a")) == ["x"]
    assert caplog.messages == []


@pytest.mark.parametrize("arrives", [True, False])
def test_a_put_whose_reply_is_lost_is_looked_for(arrives: bool) -> None:
    lake = lake_of()
    unpublished(lake, "x")
    store, put = lake.fake("a"), lake.fake("a").put_if_absent
    lost: list[str] = []

    def losing(path: str, data: bytes) -> PutOutcome:
        if lost:
            return put(path, data)
        lost.append(path)
        if arrives:
            put(path, data)
        return PutOutcome.UNKNOWN

    store.put_if_absent = losing  # type: ignore[method-assign]
    assert names(lake.open("a")) == ["x"]
    assert lake.ledger.tables["a"].published == 1


def test_replies_that_are_lost_for_good_leave_it_to_the_next() -> None:
    lake = lake_of()
    unpublished(lake, "x")
    put = lake.fake("a").put_if_absent
    lake.fake("a").put_if_absent = lambda path, data: PutOutcome.UNKNOWN  # type: ignore[method-assign]
    assert names(lake.open("a")) == ["x"]
    assert lake.ledger.tables["a"].published == 0
    lake.fake("a").put_if_absent = put  # type: ignore[method-assign]
    assert names(lake.open("a")) == ["x"]
    assert lake.ledger.tables["a"].published == 1


def test_a_catalog_that_is_away_is_unavailable() -> None:
    lake = lake_of("x")
    log = lake.open("a")
    log.latest()

    def away(moment: str) -> None:
        raise Unavailable("the catalog is away")

    lake.ledger.hook = away
    with pytest.raises(Unavailable, match="the catalog is away"):
        log.latest()


def test_an_answer_that_was_overtaken_takes_nothing_back() -> None:
    lake = lake_of("x")
    log, ask = lake.open("a"), lake.ledger.head
    log.latest()

    def slow(table_id: str) -> Head | None:
        lake.ledger.head = ask  # type: ignore[method-assign]
        answer = ask(table_id)
        lake.append("a", add("y"))
        assert log.latest().version == 2  # another thread asks, and is answered sooner
        return answer

    lake.ledger.head = slow  # type: ignore[method-assign]
    assert log.latest().version == 2
    log.forget()
    assert log.listing().latest_version == 2


def test_a_table_that_isnt_in_the_catalog() -> None:
    log = LakeOf().open("a")
    assert log.latest_or_none() is None
    assert not log.exists()
    with pytest.raises(InvalidRequest, match="not a Delta table"):
        log.latest()


# --- instants -------------------------------------------------------------------------------------


def test_an_instant_is_read_whatever_came_after() -> None:
    lake = lake_of("x", "y", "z")  # version n is of instant n + 1
    known = lake.open("a")
    known.latest()
    for log in (known, lake.open("a")):
        for sequence in (4, 2, 3, 1, 2):
            assert log.at_sequence(sequence).version == sequence - 1
    assert names(lake.open("a"), 1) == ["x"]


def test_the_newest_instant_costs_one_request_where_it_is_known() -> None:
    lake = lake_of("x")
    log = lake.open("a")
    log.latest()
    lake.ledger.requests.clear()
    lake.fake("a").requests.clear()
    assert log.at_sequence(lake.ledger.sequence()).version == 1
    assert lake.ledger.requests == ["sequence", "version_at"]
    assert lake.fake("a").requests == [("head", commit_path(2))]


def test_an_instant_that_a_commit_of_this_process_passed_is_kept() -> None:
    lake = lake_of("x")
    log = lake.open("a")
    sequence = lake.ledger.sequence()
    tx = lake.begin(logs={"a": log})
    tx.table("a").stage([add("y")], operation="WRITE")
    tx.commit()
    lake.fake("a").requests.clear()
    assert names_at(log, sequence) == ["x"]
    assert lake.fake("a").requests == []


def test_an_instant_a_little_before_a_known_one_costs_just_the_commits_between() -> None:
    lake = lake_of("v1")
    log = lake.open("a")
    assert log.latest().version == 1
    for number in range(2, 7):
        lake.append("a", add(f"v{number}"))
    assert log.latest().version == 6
    lake.fake("a").requests.clear()
    assert log.snapshot(3).version == 3
    gets = [path for kind, path in lake.fake("a").requests if kind == "get"]
    assert gets == [commit_path(2), commit_path(3)]
    assert names(log, 3) == ["v1", "v2", "v3"]


def names_at(log: TableLog, sequence: int) -> list[str]:
    return sorted(file.path for file in log.at_sequence(sequence).files.adds())


def test_a_table_that_came_after_the_instant_is_a_conflict() -> None:
    lake = LakeOf().create("a")
    sequence = lake.ledger.sequence()
    lake.create("b")
    with pytest.raises(
        MetadataChangedException,
        match=r"^b: this transaction reads the lake as of instant 1; the table was created or "
        r"attached after that, and is at version 0 now .*Run the transaction again",
    ) as caught:
        lake.open("b").at_sequence(sequence)
    evidence = caught.value.evidence
    assert evidence is not None
    assert (evidence.table, evidence.winning_version, evidence.retry) == ("b", 0, True)
    assert evidence.rule == "came_later"


def test_a_path_table_has_no_instants() -> None:
    lake = lake_of("x")
    assert lake.plain("a").at_sequence(1).version == 1


# --- checkpoints, cleanup, VACUUM -----------------------------------------------------------------


def test_a_log_that_was_cleaned_up_meanwhile_is_opened_anew() -> None:
    lake = lake_of("x")
    known = lake.open("a")
    known.latest()
    for number in range(4):
        lake.append("a", add(f"y{number}"))
    write_checkpoint(lake.open("a"))
    lake.clock.time_ms += 60 * DAY
    lake.append("a", add("z"))
    clean_log(lake.open("a"), retention_ms=DAY)
    assert commit_path(1) not in lake.fake("a").files
    expected = ["x", "y0", "y1", "y2", "y3", "z"]
    assert names(known) == expected
    assert names(lake.open("a")) == expected


def test_far_behind_it_is_opened_anew() -> None:
    lake = lake_of()
    known = lake.open("a")
    known.latest()
    for number in range(120):
        lake.append("a", add(f"y{number:03}"))
    assert len(names(known)) == 120
    assert len(names_at(lake.open("a"), 61)) == 60


def test_vacuum_tells_through_the_catalog() -> None:
    lake = lake_of("x")
    lake.fake("a").files["orphan"] = (b"1", lake.clock.now_ms() - 60 * DAY)
    begun: list[str] = []

    @contextmanager
    def begin() -> Iterator[str]:
        begun.append(lake.system.new_id())
        yield begun[-1]

    with pytest.raises(InvalidRequest, match=r"where its name is db\.a"):
        vacuum(lake.plain("a"))
    assert "orphan" in lake.fake("a").files
    plan = vacuum(lake.open("a"), begin=begin)
    assert plan.paths == ("orphan",)
    assert "orphan" not in lake.fake("a").files
    log = lake.open("a")
    assert [row["operation"] for row in log.history(2)] == ["VACUUM END", "VACUUM START"]
    assert lake.ledger.ratified[-2:] == begun
    assert log.latest().version == 3
    assert len(begun) == 2


def test_files_of_the_log_are_named_as_they_are() -> None:
    lake = lake_of("x", settings=Settings(inline_commit_bytes_max=0))
    unpublished(lake, "y")
    staged = [path for path in lake.fake("a").files if "_staged_commits" in path]
    assert [log_path(name) for path in staged if (name := parse_name(path))] == staged
    assert lake.open("a").latest().metadata.id == "a"


@pytest.mark.parametrize("of_lake", [True, False])
def test_a_commit_that_is_missing_may_be_one_of_a_catalog_that_went_back(of_lake: bool) -> None:
    lake = lake_of("x", "y")
    lake.store("a").delete([commit_path(2)])
    log = lake.open("a") if of_lake else lake.plain("a")
    with pytest.raises(CorruptTable, match=r"2\.json is missing") as caught:
        list(log.commits(1, 2))
    assert ("lake.recover()" in str(caught.value)) is of_lake
