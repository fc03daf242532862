"""Logs of branches: versions that diverge from main's, with checkpoints, clean-up and a catalog."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.commit.branching import (
    FIRST,
    SECOND,
    THIRD,
    append_on,
    branch_of,
    commit_on,
    files,
    folder_of,
    log_on,
    numbered,
)
from tests.commit.lake_of import LakeOf
from tests.commit.log_of import DAY, LogOf, add, remove
from tests.commit.test_checkpointing import _V2
from tests.interop import DuckDB
from tests.peers import need
from tests.support.ledger import LedgerTable
from txlake.commit import log_cleanup
from txlake.commit.branch_store import BranchStore
from txlake.commit.checkpointing import after_commit, write_checkpoint
from txlake.commit.log_cleanup import clean_log
from txlake.commit.row_origins import Origins
from txlake.commit.row_sources_codec import known_sources
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.commit.vacuum import plan_vacuum, vacuum
from txlake.errors import CorruptTable, InvalidRequest
from txlake.ports import Store
from txlake.protocol.actions import Action, Protocol
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    LOG_FOLDER,
    SIDECAR_FOLDER,
    STAGED_FOLDER,
    ClassicCheckpoint,
    checksum_path,
    commit_path,
    log_path,
)
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

V2 = {"delta.checkpointPolicy": "v2"}


def made(*versions: int) -> list[str]:
    """The files of main's versions of these numbers, as `numbered` makes them."""
    return sorted(f"f{version}" for version in versions)


def test_main_and_two_branches_diverge() -> None:
    table = numbered(6)
    stores: Mapping[str, Store] = {
        "main": table.store,
        "first": branch_of(table, 2),
        "second": branch_of(table, 4, SECOND),
    }
    logs = {name: log_on(store, table.clock) for name, store in stores.items()}
    assert [log.latest().version for log in logs.values()] == [5, 2, 4]
    for count in range(3):
        for name, log in logs.items():
            append_on(log, f"{name}{count}")
    assert commit_on(logs["first"], [remove("f1"), add("instead")]) == 6
    own = {name: [f"{name}{count}" for count in range(3)] for name in logs}
    expected = {
        "main": (8, [*made(*range(6)), *own["main"]]),
        "first": (6, ["f0", "f2", *own["first"], "instead"]),
        "second": (7, [*made(*range(5)), *own["second"]]),
    }
    for name, (version, paths) in expected.items():
        for log in (logs[name], log_on(stores[name], table.clock)):
            latest = log.latest()
            assert (latest.version, files(latest)) == (version, sorted(paths))


def test_versions_at_and_below_the_base_are_read_as_mains() -> None:
    table = numbered(6)
    log = log_on(branch_of(table, 3), table.clock)
    table.clock.time_ms += 10_000
    append_on(log, "own")
    for version in range(4):
        assert files(log.snapshot(version)) == made(*range(version + 1))
    times = log.times_of(range(5))
    assert [log.version_at(times[version]) for version in range(5)] == list(range(5))
    # Main was at a later version then; the branch was not.
    assert log.version_at(times[4] - 1) == 3
    assert [row["version"] for row in log.history()] == [4, 3, 2, 1, 0]
    with pytest.raises(InvalidRequest, match="the latest version is 4"):
        log.snapshot(5)


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("parent", ["main", "a branch"])
def test_checkpoints_of_either_log_are_used(is_v2: bool, parent: str) -> None:
    table = LogOf(Settings(checkpoint_part_rows_max=2))
    more = {"configuration": V2, "protocol": _V2} if is_v2 else {}
    table.create(*map(add, made(*range(5))), **more)  # type: ignore[arg-type]
    store: Store = table.store
    if parent == "a branch":
        store = BranchStore(store, THIRD, 0)
    inner = log_on(store, table.clock, table.settings)
    write_checkpoint(inner, inner.latest()) if parent == "main" else None
    append_on(inner, "before")
    write_checkpoint(inner)
    append_on(inner, "later")
    append_on(inner, "main")
    branch = BranchStore(store, FIRST, 2)
    log = log_on(branch, table.clock, table.settings)
    # The commits that the parent's checkpoint stands for aren't read.
    table.store.failing |= {commit_path(0), commit_path(1)}
    expected = [*made(*range(5)), "before", "later"]
    assert files(log.latest()) == sorted(expected)
    append_on(log, "own")
    table.store.failing.clear()
    before = {path for path in table.store.files if path.startswith(f"{folder_of(FIRST)}/")}
    assert write_checkpoint(log) == 3
    new = {path for path in table.store.files if path.startswith(f"{folder_of(FIRST)}/")} - before
    kinds = sorted(path.removeprefix(f"{folder_of(FIRST)}/").split(".")[0] for path in new)
    sidecars = [kind for kind in kinds if kind.startswith("_sidecars")]
    assert len(sidecars) == (4 if is_v2 else 0)
    parts = 1 if is_v2 else 4
    assert [kind for kind in kinds if kind not in sidecars] == [
        *[f"{3:020d}"] * parts,
        "_last_checkpoint",
    ]
    table.store.failing |= {path for path in table.paths if not path.endswith(".crc")} - new
    again = log_on(branch, table.clock, table.settings).latest()
    assert files(again) == sorted([*expected, "own"])


def test_a_checkpoint_of_the_base_is_the_parents_to_write() -> None:
    table = numbered(3)
    log = log_on(branch_of(table, 1), table.clock)
    before = table.paths
    with pytest.raises(InvalidRequest, match="begin after 1"):
        write_checkpoint(log)
    assert table.paths == before


def test_a_missing_commit_of_the_branch_is_named() -> None:
    table = numbered(3)
    branch = branch_of(table, 1)
    log = log_on(branch, table.clock)
    for number in range(3):
        append_on(log, f"own{number}")
    branch.delete([commit_path(2)])
    with pytest.raises(CorruptTable, match=r"2\.json is missing \(expected every commit from 0 to"):
        log_on(branch, table.clock).latest()


def test_what_follows_a_commit_is_in_the_branchs_log(caplog: pytest.LogCaptureFixture) -> None:
    table = numbered(3, configuration={"delta.checkpointInterval": "4"})
    branch = branch_of(table, 2)
    before = table.paths
    log = log_on(branch, table.clock)
    for number in range(3):
        append_on(log, f"own{number}")
        after_commit(log, log.latest())
    own = [checksum_path(version) for version in range(3, 6)]
    own += [commit_path(version) for version in range(3, 6)]
    own += [log_path(ClassicCheckpoint(4)), LAST_CHECKPOINT_PATH]
    moved = [path.replace(LOG_FOLDER, folder_of(FIRST), 1) for path in own]
    assert table.paths == sorted([*before, *moved])
    # A checksum that isn't the version's would be logged.
    assert len(files(log_on(branch, table.clock).latest())) == 6
    assert caplog.records == []


# --- clean-up -----------------------------------------------------------------------------------


def aged(*, own: int, interval: int) -> tuple[LogOf, BranchStore]:
    """Main's versions 0 to 9 with checkpoints at 3, 6 and 9; and a branch of version 4, all old."""
    table = numbered(10)
    for version in (3, 6, 9):
        write_checkpoint(table.open(), table.open().snapshot(version))
    branch = branch_of(table, 4)
    log = log_on(branch, table.clock)
    for version in range(5, 5 + own):
        append_on(log, f"own{version}")
        if version % interval == 0:
            write_checkpoint(log)
    table.clock.time_ms += 100 * DAY
    return table, branch


def test_a_branch_keeps_where_its_rows_are_from() -> None:
    """In its commits, until it is published; main has no use for it."""
    feed = Protocol(min_reader_version=1, min_writer_version=4)
    table = LogOf().create(
        add("f0"), configuration={"delta.enableChangeDataFeed": "true"}, protocol=feed
    )
    origins = Origins(
        sources=("f0",), files=np.array([0], np.int32), rows=np.array([0]), is_update=True
    )
    for log, keeps in ((log_on(branch_of(table, 0), table.clock), True), (table.open(), False)):
        transaction = TableTransaction(log, log.latest())
        transaction.stage([remove("f0"), add("f1")], operation="UPDATE", origins={"f1": origins})
        version = transaction.commit().version
        base, commits = log.snapshot(0), list(log.commits(0, version))
        assert known_sources(base, commits).row_sources.keys() == ({"f1"} if keeps else set())


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake whose catalog says that no version is read."""
    monkeypatch.setattr(log_cleanup, "oldest_needed", lambda log: None)


@pytest.mark.usefixtures("unread")
def test_a_clean_up_of_a_branch_deletes_its_own_versions_alone() -> None:
    table, branch = aged(own=5, interval=4)
    before = set(table.paths)
    gone = clean_log(log_on(branch, table.clock), retention_ms=30 * DAY)
    own = (5, 6, 7)
    assert gone == sorted([*map(commit_path, own), *map(checksum_path, own)])
    moved = {path.replace(LOG_FOLDER, folder_of(FIRST), 1) for path in gone}
    assert before - set(table.paths) == moved
    log = log_on(branch, table.clock)
    expected = [*made(*range(5)), *(f"own{version}" for version in range(5, 10))]
    assert files(log.latest()) == sorted(expected)
    assert files(log.snapshot(8)) == sorted(expected[:-1])
    # The versions before the base are cleaned up with those after it: a time between them would
    # otherwise be taken for the base's.
    for version in (2, 4, 6):
        with pytest.raises(InvalidRequest, match="was cleaned up; the log can rebuild versions 8"):
            log.snapshot(version)
    with pytest.raises(InvalidRequest, match="before the oldest version"):
        log.version_at(table.store.files[commit_path(4)][1])
    assert clean_log(log, retention_ms=30 * DAY) == []


@pytest.mark.parametrize("own", [0, 3])
def test_a_branch_without_a_checkpoint_of_its_own_keeps_all(own: int) -> None:
    table, branch = aged(own=own, interval=100)
    before = table.paths
    assert clean_log(log_on(branch, table.clock), retention_ms=30 * DAY) == []
    assert table.paths == before
    assert len(files(log_on(branch, table.clock).snapshot(0))) == 1


def test_a_clean_up_of_main_leaves_branches_as_they_are() -> None:
    table, branch = aged(own=6, interval=4)
    own = {path for path in table.paths if path.startswith("_delta_log/_branches/")}
    branch.put(f"{SIDECAR_FOLDER}/orphan.parquet", b"the branch's")
    own.add(f"{folder_of(FIRST)}/_sidecars/orphan.parquet")
    table.clock.time_ms += 2 * DAY
    gone = clean_log(table.open(), retention_ms=30 * DAY)
    checkpoints = [log_path(ClassicCheckpoint(version)) for version in (3, 6)]
    assert gone == sorted([*map(commit_path, range(9)), *checkpoints])
    assert own <= set(table.paths)
    assert len(files(log_on(branch, table.clock).snapshot(8))) == 9


@pytest.mark.usefixtures("unread")
def test_sidecars_of_a_branch_go_with_its_checkpoints() -> None:
    table = LogOf().create(add("a"), configuration=V2, protocol=_V2)
    write_checkpoint(table.open())
    branch = branch_of(table, 0)
    log = log_on(branch, table.clock)
    for number in range(2):
        append_on(log, f"own{number}")
        write_checkpoint(log)
        table.clock.time_ms += 40 * DAY
    sidecars = {path for path in table.paths if "_sidecars" in path}
    clean_log(log_on(branch, table.clock), retention_ms=30 * DAY)
    left = {path for path in table.paths if "_sidecars" in path}
    assert [len(sidecars), len(left)] == [3, 2]
    assert any(path.startswith(SIDECAR_FOLDER) for path in left)
    assert len(files(log_on(branch, table.clock).latest())) == 3
    assert len(files(table.open().latest())) == 1


def test_a_vacuum_of_main_does_not_take_branches_logs_for_its_files() -> None:
    table, _ = aged(own=6, interval=4)
    for version in range(10):
        table.store.put(f"f{version}", b"x")
    table.store.put("old", b"x")
    table.clock.time_ms += 100 * DAY
    assert plan_vacuum(table.open()).paths == ("old",)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_vacuum_of_a_branch_is_refused(dry_run: bool) -> None:
    """What its versions don't need is main's."""
    table, branch = aged(own=1, interval=4)
    table.store.put("f9", b"main's")
    before = table.paths
    with pytest.raises(InvalidRequest, match=r"found a branch of it: .* Run VACUUM on main"):
        vacuum(log_on(branch, table.clock), dry_run=dry_run)
    assert table.paths == before


# --- catalog tables -----------------------------------------------------------------------------


def lake_with_branch(settings: Settings | None = None) -> LakeOf:
    """Main is `a`, at version 3; `b` is a branch of its version 2."""
    lake = LakeOf(settings).create("a")
    for number in range(1, 4):
        lake.append("a", add(f"f{number}"))
    lake.stores["b"] = BranchStore(lake.store("a"), FIRST, 2)
    lake.ledger.tables["b"] = LedgerTable("db.b", 2, 2, since={2: len(lake.ledger.ratified)})
    return lake


@pytest.mark.parametrize("inline", [10**6, 0])
def test_a_branchs_ratified_commits_are_published_to_its_log(inline: int) -> None:
    lake = lake_with_branch(Settings(inline_commit_bytes_max=inline))
    log = lake.open("b")
    assert (log.latest().version, files(log.latest())) == (2, ["f1", "f2"])
    lake.append("b", add("own"))
    lake.append("a", add("main"))
    assert files(log.latest()) == files(lake.open("b").latest()) == ["f1", "f2", "own"]
    assert files(lake.open("a").latest()) == ["f1", "f2", "f3", "main"]
    assert f"{folder_of(FIRST)}/{3:020d}.json" in lake.fake("a").files
    assert not any("_staged_commits" in path for path in lake.fake("a").files)


def test_a_staged_commit_that_is_not_published_yet_is_read() -> None:
    lake = lake_with_branch(Settings(inline_commit_bytes_max=0))
    main = lake.fake("a")
    path = f"{folder_of(FIRST)}/{3:020d}.json"
    main.failing.add(path)
    lake.append("b", add("own"))
    assert path not in main.files
    staged = [path for path in main.files if "_staged_commits" in path]
    assert [one.startswith(folder_of(FIRST)) for one in staged] == [True]
    assert [item.path for item in lake.store("b").list(STAGED_FOLDER)] == [
        staged[0].replace(folder_of(FIRST), LOG_FOLDER)
    ]
    assert files(lake.open("b").latest()) == ["f1", "f2", "own"]
    main.failing.clear()
    assert files(lake.open("b").latest()) == ["f1", "f2", "own"]
    assert path in main.files
    assert not any("_staged_commits" in path for path in main.files)


def test_main_and_branch_change_in_one_transaction() -> None:
    lake = lake_with_branch()
    tx = lake.begin()
    tx.table("a").stage([add("both")], operation="WRITE")
    tx.table("b").stage([add("both")], operation="WRITE")
    tx.commit()
    assert files(lake.open("a").latest()) == ["both", "f1", "f2", "f3"]
    assert files(lake.open("b").latest()) == ["both", "f1", "f2"]


def test_a_branchs_log_beyond_its_head_is_refused_and_mains_is_not_its_business() -> None:
    lake = lake_with_branch()
    log = lake.open("b")
    log.latest()
    lake.append("a", add("main"))
    assert log.latest().version == 2
    lake.store("b").put(commit_path(3), b"{}")
    with pytest.raises(CorruptTable, match=r"at version 2, and there is .*3\.json in its log"):
        log.latest()


# --- any sequence of commits --------------------------------------------------------------------


class LogChain:
    """What a log should have: the files of each of its versions, and from which on."""

    def __init__(self, store: Store, states: Mapping[int, frozenset[str]], base: int = -1) -> None:
        self.store = store
        self.base = base
        self.states = dict(states)
        self.oldest = min(states)
        self.checkpoints: set[int] = set()
        self.bases: list[int] = []  # of the branches that were forked from it
        self.warm: TableLog | None = None

    @property
    def head(self) -> int:
        return max(self.states)


class AnyCommits(RuleBasedStateMachine):
    """Commits, checkpoints, clean-ups and reads on main, on branches, and on branches of these."""

    is_v2 = False

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        self.names = 0
        self.table = LogOf(Settings(checkpoint_part_rows_max=2))
        more = {"configuration": V2, "protocol": _V2} if self.is_v2 else {}
        self.table.create(**more)  # type: ignore[arg-type]
        main = LogChain(self.table.store, {0: frozenset()})
        self.chains = [main]
        for _ in range(count):
            self.commit(main, is_removing=False)

    def log_of(self, chain: LogChain, is_warm: bool) -> TableLog:
        if chain.warm is None or not is_warm:
            chain.warm = log_on(chain.store, self.table.clock, self.table.settings)
        return chain.warm

    def commit(self, chain: LogChain, *, is_removing: bool) -> None:
        self.names += 1
        self.table.clock.time_ms += 1_000
        name, state = f"f{self.names}", chain.states[chain.head]
        gone = min(state) if is_removing and state else None
        actions: list[Action] = [add(name), *([remove(gone)] if gone else [])]
        log_on(chain.store, self.table.clock).write_commit(chain.head + 1, actions)
        chain.states[chain.head + 1] = (state | {name}) - {gone}

    def pick(self, which: int) -> LogChain:
        return self.chains[which % len(self.chains)]

    @rule(which=st.integers(0, 5), count=st.integers(1, 3), is_removing=st.booleans())
    def write(self, which: int, count: int, is_removing: bool) -> None:
        for _ in range(count):
            self.commit(self.pick(which), is_removing=is_removing)

    @rule(which=st.integers(0, 5), back=st.integers(0, 3))
    def fork(self, which: int, back: int) -> None:
        parent = self.pick(which)
        base = max(parent.head - back, parent.oldest, parent.base, 0)
        if len(self.chains) == 6:
            return
        store = BranchStore(parent.store, f"branch-{len(self.chains)}", base)
        states = {at: state for at, state in parent.states.items() if parent.oldest <= at <= base}
        parent.bases.append(base)
        self.chains.append(LogChain(store, states, base))

    @rule(which=st.integers(0, 5), is_warm=st.booleans())
    def checkpoint(self, which: int, is_warm: bool) -> None:
        chain = self.pick(which)
        if chain.head > chain.base:
            log = self.log_of(chain, is_warm)
            assert write_checkpoint(log) == chain.head
            chain.checkpoints.add(chain.head)

    @rule(which=st.integers(0, 5))
    def clean_up(self, which: int) -> None:
        chain = self.pick(which)
        kept = max(chain.checkpoints, default=-1)
        if any(base < kept for base in chain.bases):
            return  # the catalog protects what branches read
        self.table.clock.time_ms += 100 * DAY
        clean_log(self.log_of(chain, is_warm=False), retention_ms=DAY)
        chain.oldest = max(chain.oldest, kept)
        for other in self.chains:
            if other.base >= kept and other is not chain and self.is_below(other, chain):
                other.oldest = max(other.oldest, kept)

    def is_below(self, chain: LogChain, other: LogChain) -> bool:
        """Whether a chain reads versions of another one."""
        text = repr(other.store)
        return other is self.chains[0] or text in repr(chain.store)

    @rule(which=st.integers(0, 5), version=st.integers(0, 12), is_warm=st.booleans())
    def read(self, which: int, version: int, is_warm: bool) -> None:
        chain = self.pick(which)
        log = self.log_of(chain, is_warm)
        latest = log.latest()
        assert latest.version == chain.head
        assert set(files(latest)) == chain.states[chain.head]
        log = self.log_of(chain, is_warm=False)
        if version > chain.head or version < chain.oldest:
            with pytest.raises(InvalidRequest, match="DELTA_VERSION_NOT_FOUND"):
                log.snapshot(version)
        else:
            assert set(files(log.snapshot(version))) == chain.states[version]


class AnyCommitsV2(AnyCommits):
    is_v2 = True


_SETTINGS = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
TestAnyCommits = AnyCommits.TestCase
TestAnyCommits.settings = _SETTINGS
TestAnyCommitsV2 = AnyCommitsV2.TestCase
TestAnyCommitsV2.settings = _SETTINGS


# --- other engines ------------------------------------------------------------------------------

READ_HERE = pytest.mark.no_interop("the test itself reads the table by other engines")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table by delta-rs with the rows 0 to 3, of which a branch of version 1 adds and removes."""
    folder = tmp_path / "t"
    for number in range(4):
        rows = pa.table({"id": [number]})
        deltalake.write_deltalake(folder, rows, mode="append")
    branch = BranchStore(open_store(str(folder)), FIRST, 1)
    log = TableLog(branch, System(), Settings())
    data = next(iter(log.latest().files.adds()))
    commit_on(log, [remove(data.path)])
    append_on(log, *(f"own{number}.parquet" for number in range(3)))
    write_checkpoint(log)
    append_on(log, "last.parquet")
    after_commit(log, log.latest())
    return folder


@READ_HERE
def test_other_readers_of_main_see_no_branch(place: Path) -> None:
    table = deltalake.DeltaTable(place)
    assert table.version() == 3
    assert sorted(pl.read_delta(str(place))["id"]) == [0, 1, 2, 3]
    deltalake.write_deltalake(place, pa.table({"id": [4]}), mode="append")
    table.update_incremental()
    table.create_checkpoint()
    table.cleanup_metadata()
    again = deltalake.DeltaTable(place)
    assert again.version() == 4
    assert sorted(again.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert again.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True) == []
    assert TableLog(open_store(str(place)), System(), Settings()).latest().version == 4
    branch = TableLog(BranchStore(open_store(str(place)), FIRST, 1), System(), Settings())
    assert (branch.latest().version, len(files(branch.latest()))) == (4, 5)


@READ_HERE
@pytest.mark.peer("duckdb")
def test_duckdb_sees_no_branch_of_main(place: Path) -> None:
    python = Path(__file__).parents[2] / ".cache/duckdb-delta/bin/python"
    need("duckdb", found=python.exists())
    with closing(DuckDB(python)) as duckdb:
        rows = duckdb.rows(place)
    assert isinstance(rows, pa.Table)
    assert sorted(rows["id"].to_pylist()) == [0, 1, 2, 3]


@READ_HERE
def test_the_folder_of_a_branch_is_no_table(place: Path) -> None:
    """Not even with a checkpoint: the Delta kernel takes the outer log for the files' folder."""
    with pytest.raises(DeltaError, match="didn't find any checkpoints"):
        deltalake.DeltaTable(place / "_delta_log/_branches" / FIRST)
    shutil.copytree(place / "_delta_log/_branches" / FIRST, place.parent / "copy")
    copied = deltalake.DeltaTable(place.parent / "copy")
    assert copied.version() == 4
    # The paths of data files begin at the root of the branch's table.
    assert not any(Path(unquote(urlsplit(uri).path)).exists() for uri in copied.file_uris())
