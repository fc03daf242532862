"""Where each file of a branch is, request by request; and that it is one log with its parent's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.commit.branching import FIRST, SECOND, THIRD, branch_of, folder_of, log_on
from tests.commit.distant import Distant
from tests.commit.log_of import Clock, FakeStore, LogOf
from tests.storage import test_contract
from txlake.commit.branch_store import BranchStore
from txlake.commit.log_cleanup import clean_log
from txlake.commit.reconciliation import newest_in_log
from txlake.errors import InvalidRequest
from txlake.ports import PutOutcome, Store, StoredObject
from txlake.protocol.file_names import (
    BRANCHES_FOLDER,
    LAST_CHECKPOINT_PATH,
    LOG_FOLDER,
    SIDECAR_FOLDER,
    STAGED_FOLDER,
    VERSIONS_END,
    checksum_path,
    commit_path,
    listing_start,
    version_of,
)
from txlake.storage import open_store

BASE = 2
PUTS = ("put", "put_if_absent", "put_unsynced")
CHECKPOINTS = {
    "classic": "checkpoint.parquet",
    "part": "checkpoint.0000000001.0000000002.parquet",
    "V2": f"checkpoint.{FIRST}.parquet",
    "V2 in JSON": f"checkpoint.{FIRST}.json",
}
KINDS = {"commit": "json", "checksum": "crc", **CHECKPOINTS}


def file_of(version: int, kind: str) -> str:
    return f"{LOG_FOLDER}/{version:020d}.{KINDS[kind]}"


def compaction(start: int, end: int) -> str:
    return f"{LOG_FOLDER}/{start:020d}.{end:020d}.compacted.json"


@pytest.fixture
def table() -> LogOf:
    """A folder with all kinds of files, of versions before and after the base."""
    table = LogOf()
    for version in range(2 * BASE + 1):
        for kind in KINDS:
            table.store.put(file_of(version, kind), f"main {version}".encode())
    for path in (
        compaction(0, BASE),
        compaction(1, BASE + 1),
        LAST_CHECKPOINT_PATH,
        f"{SIDECAR_FOLDER}/main.parquet",
        f"{STAGED_FOLDER}/{BASE:020d}.x.json",
        f"{LOG_FOLDER}/.hidden",
        f"{LOG_FOLDER}/_set_aside/x",
        "part-0.parquet",
        "_change_data/c.parquet",
        "z=1/part-1.parquet",
    ):
        table.store.put(path, b"main")
    return table


@pytest.fixture
def branch(table: LogOf) -> BranchStore:
    return branch_of(table, BASE)


def paths(store: Store, prefix: str = "", *bounds: str | None) -> list[str]:
    return [item.path for item in store.list(prefix, *bounds)]


@pytest.mark.parametrize("kind", KINDS)
def test_files_up_to_the_base_are_the_parents(table: LogOf, branch: BranchStore, kind: str) -> None:
    for version in range(BASE + 1):
        path = file_of(version, kind)
        assert branch.get(path) == f"main {version}".encode()
        assert branch.get_range(path, 5, 10) == str(version).encode()
        assert branch.head(path) == table.store.head(path)
    assert branch.get(compaction(0, BASE)) == b"main"


@pytest.mark.parametrize(
    "path",
    [
        *(file_of(BASE + 1, kind) for kind in KINDS),
        compaction(1, BASE + 1),
        LAST_CHECKPOINT_PATH,
        f"{STAGED_FOLDER}/{BASE:020d}.x.json",
        f"{LOG_FOLDER}/.hidden",
    ],
)
def test_later_files_and_those_without_a_version_are_the_branchs(
    table: LogOf, branch: BranchStore, path: str
) -> None:
    with pytest.raises(FileNotFoundError):
        branch.get(path)
    with pytest.raises(FileNotFoundError):
        branch.get_range(path, 0, 1)
    assert branch.head(path) is None
    assert branch.put_if_absent(path, b"own") is PutOutcome.CREATED
    assert branch.put_if_absent(path, b"again") is PutOutcome.EXISTS
    branch.put_unsynced(path, b"again")
    assert branch.get(path) == b"own"
    found = branch.head(path)
    assert found is not None
    assert (found.path, found.size_bytes) == (path, 3)
    assert table.store.files[path][0] != b"own"
    assert table.store.files[path.replace(LOG_FOLDER, folder_of(FIRST), 1)][0] == b"own"
    branch.put(path, b"new")
    assert branch.get(path) == b"new"
    branch.delete([path])
    assert branch.head(path) is None
    assert path in table.store.files


@pytest.mark.parametrize("path", [*(file_of(BASE, kind) for kind in KINDS), compaction(0, BASE)])
def test_the_parents_files_are_read_only(table: LogOf, branch: BranchStore, path: str) -> None:
    before = dict(table.store.files)
    for put in (branch.put, branch.put_if_absent, branch.put_unsynced):
        with pytest.raises(InvalidRequest, match="can't be written on a branch"):
            put(path, b"own")
    branch.delete([path])
    branch.delete([file_of(0, "commit"), path, f"{SIDECAR_FOLDER}/main.parquet"])
    assert table.store.files == before


def test_a_sidecar_is_the_branchs_or_else_the_parents(table: LogOf, branch: BranchStore) -> None:
    shared, own = f"{SIDECAR_FOLDER}/main.parquet", f"{SIDECAR_FOLDER}/own.parquet"
    assert branch.get(shared) == b"main"
    assert branch.get_range(shared, 1, 2) == b"ai"
    assert branch.head(shared) == table.store.head(shared)
    branch.put(own, b"own")
    assert branch.get(own) == b"own"
    assert own not in table.store.files
    assert paths(branch, SIDECAR_FOLDER) == [own]
    with pytest.raises(FileNotFoundError):
        branch.get(f"{SIDECAR_FOLDER}/gone.parquet")
    assert branch.head(f"{SIDECAR_FOLDER}/gone.parquet") is None


def test_the_log_is_listed_as_one(table: LogOf, branch: BranchStore) -> None:
    own = [
        file_of(BASE + 1, "commit"),
        file_of(BASE + 1, "checksum"),
        file_of(BASE + 2, "commit"),
        compaction(1, BASE + 2),
        LAST_CHECKPOINT_PATH,
        f"{STAGED_FOLDER}/{BASE + 3:020d}.x.json",
        f"{LOG_FOLDER}/.hidden",
    ]
    for path in own:
        branch.put(path, b"own")
    inherited = [file_of(version, kind) for version in range(BASE + 1) for kind in KINDS]
    expected = sorted([*inherited, compaction(0, BASE), *own])
    assert paths(branch, LOG_FOLDER) == paths(branch, f"{LOG_FOLDER}/") == expected
    for start in (None, "", LOG_FOLDER, listing_start(1), listing_start(BASE), *expected, "z"):
        after = [path for path in expected if path > (start or "")]
        assert paths(branch, LOG_FOLDER, start) == after
        for end in (VERSIONS_END, listing_start(BASE), listing_start(BASE + 2), expected[-1]):
            assert paths(branch, LOG_FOLDER, start, end) == [path for path in after if path < end]
    sizes = {item.path: item.size_bytes for item in branch.list(LOG_FOLDER)}
    assert {sizes[path] for path in own} == {3}
    assert paths(branch, STAGED_FOLDER) == own[5:6]


def test_a_listing_of_the_table_has_this_log_alone(table: LogOf, branch: BranchStore) -> None:
    BranchStore(table.store, SECOND, BASE).put(commit_path(BASE + 1), b"another's")
    branch.put(commit_path(BASE + 1), b"own")
    branch.put("a.parquet", b"own")
    outside = ["_change_data/c.parquet", "a.parquet", "part-0.parquet", "z=1/part-1.parquet"]
    assert paths(branch) == sorted([*paths(branch, LOG_FOLDER), *outside])
    assert paths(branch, "", "a.parquet") == outside[2:]
    assert paths(branch, "", None, listing_start(1)) == [
        outside[0],
        *paths(branch, LOG_FOLDER, None, listing_start(1)),
    ]
    assert paths(branch, "z=1") == outside[3:]


def test_other_files_are_the_tables(table: LogOf, branch: BranchStore) -> None:
    branch.put("new.parquet", b"own")
    assert table.store.files["new.parquet"][0] == b"own"
    branch.delete(["new.parquet", "part-0.parquet"])
    assert not {"new.parquet", "part-0.parquet"} & table.store.files.keys()
    # The name of a commit, but not in the log.
    branch.put(f"{BASE:020d}.json", b"own")
    assert f"{BASE:020d}.json" in table.store.files


def test_the_folder_of_branches_is_the_tables(table: LogOf, branch: BranchStore) -> None:
    branch.put(commit_path(BASE + 1), b"own")
    own = f"{folder_of(FIRST)}/{BASE + 1:020d}.json"
    assert paths(branch, "_delta_log/_branches") == [own]
    assert branch.get(own) == b"own"
    branch.delete([own])
    assert branch.head(commit_path(BASE + 1)) is None


def test_a_branch_of_a_branch_has_a_folder_of_its_own_in_the_table(table: LogOf) -> None:
    parent = branch_of(table, BASE)
    for version in range(BASE + 1, BASE + 4):
        parent.put(commit_path(version), f"parent {version}".encode())
    parent.put(f"{SIDECAR_FOLDER}/parent.parquet", b"parent")
    child = BranchStore(parent, SECOND, BASE + 2)
    child.put(commit_path(BASE + 3), b"child")
    grandchild = BranchStore(child, THIRD, BASE + 3)
    commits = [path for path in paths(grandchild, LOG_FOLDER) if version_of(path) > BASE]
    assert commits == [commit_path(version) for version in range(BASE + 1, BASE + 4)]
    assert [grandchild.get(path) for path in commits] == [b"parent 3", b"parent 4", b"child"]
    assert grandchild.get(f"{SIDECAR_FOLDER}/parent.parquet") == b"parent"
    assert grandchild.get(f"{SIDECAR_FOLDER}/main.parquet") == b"main"
    with pytest.raises(InvalidRequest, match="after 5"):
        grandchild.put(commit_path(BASE + 3), b"")
    assert f"{folder_of(SECOND)}/{BASE + 3:020d}.json" in table.store.files


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_after_a_clean_up_the_log_begins_with_the_branchs_checkpoint(
    branch: BranchStore, checkpoint: str
) -> None:
    for version in (BASE + 2, BASE + 3):
        branch.put(commit_path(version), b"own")
    inherited = file_of(0, "commit")
    assert inherited in paths(branch, LOG_FOLDER)  # a version is missing, and was not cleaned up
    branch.put(file_of(BASE + 2, checkpoint), b"own")
    assert {version_of(path) for path in paths(branch, LOG_FOLDER)} == {BASE + 2, BASE + 3}
    assert paths(branch, LOG_FOLDER, listing_start(BASE))[0] == file_of(BASE + 2, checkpoint)
    branch.put(commit_path(BASE + 1), b"own")
    assert inherited in paths(branch, LOG_FOLDER)


def test_foreign_files_of_the_parents_versions_are_no_part_of_the_log(
    table: LogOf, branch: BranchStore
) -> None:
    before = paths(branch, LOG_FOLDER)
    for version in range(BASE + 1):
        table.store.put(f"{folder_of(FIRST)}/{version:020d}.json", b"foreign")
    assert paths(branch, LOG_FOLDER) == before
    assert branch.get(commit_path(BASE)) == f"main {BASE}".encode()


def test_sweeping_the_log_sweeps_the_branchs(table: LogOf, branch: BranchStore) -> None:
    for prefix in (LOG_FOLDER, "", "z=1"):
        branch.sweep(prefix, 7)
    assert table.store.sweeps == [(folder_of(FIRST), 7), ("", 7), ("z=1", 7)]


def test_what_a_store_says_of_itself_is_the_tables(table: LogOf, branch: BranchStore) -> None:
    assert (branch.url, branch.excludes_late_writes) == (table.store.url, True)
    far = Distant(Clock(), "s3://a")
    assert not BranchStore(far, FIRST, 0).excludes_late_writes
    branch.ensure_safe()
    assert table.store.requests[-1] == ("ensure_safe", "")
    assert branch.at("") is branch
    with pytest.raises(NotImplementedError):
        branch.at("folder")
    for folder in (LOG_FOLDER, SIDECAR_FOLDER):
        with pytest.raises(InvalidRequest, match="isn't one folder"):
            branch.at(folder)


class Pending:
    """A branch whose base is put into its parent's log when it is asked for, and how often."""

    def __init__(self) -> None:
        self.asked = 0
        self.parent = FakeStore(Clock())
        self.parent.put(commit_path(0), b"zero")
        self.store = BranchStore(self.parent, FIRST, 1, self._publish)

    def _publish(self) -> None:
        self.asked += 1
        self.parent.put_if_absent(commit_path(1), b"one")


def read_head(store: Store) -> bytes:
    found = store.head(commit_path(1))
    assert found is not None
    assert (found.path, found.size_bytes) == (commit_path(1), 3)
    return b"one"


def read_listed(store: Store) -> bytes:
    assert [item.path for item in store.list(LOG_FOLDER)] == [commit_path(0), commit_path(1)]
    return b"one"


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get(commit_path(1)),
        lambda store: store.get_range(commit_path(1), 0, 3),
        read_head,
        read_listed,
    ],
    ids=["get", "get_range", "head", "list"],
)
def test_a_base_that_is_not_published_yet_is_published(read: Callable[[Store], bytes]) -> None:
    pending = Pending()
    for _ in range(2):
        assert read(pending.store) == b"one"
        assert pending.asked == 1


def test_nothing_else_has_to_be_published() -> None:
    pending = Pending()
    with pytest.raises(FileNotFoundError):
        pending.store.get(file_of(1, "classic"))
    assert pending.store.head(file_of(1, "classic")) is None
    with pytest.raises(FileNotFoundError):
        pending.store.get(commit_path(2))
    assert pending.store.head(commit_path(2)) is None
    assert list(pending.store.list(LOG_FOLDER, commit_path(1))) == []
    assert [item.path for item in pending.store.list(LOG_FOLDER, None, commit_path(1))] == [
        commit_path(0)
    ]
    assert pending.asked == 0


def test_a_sidecar_of_the_branch_is_its_own() -> None:
    parent = FakeStore(Clock())
    store = BranchStore(parent, FIRST, 1)
    path = f"{SIDECAR_FOLDER}/s.parquet"
    parent.put(path, b"of the parent")
    store.put(path, b"own")
    head = store.head(path)
    assert head is not None
    assert (head.size_bytes, store.get(path)) == (3, b"own")


def test_the_logs_of_other_branches_are_listed_whole() -> None:
    parent = FakeStore(Clock())
    store, other = BranchStore(parent, FIRST, 5), BranchStore(parent, SECOND, 0)
    other.put(commit_path(1), b"one")
    paths = [item.path for item in store.list(BRANCHES_FOLDER)]
    assert paths == [f"{BRANCHES_FOLDER}/{SECOND}/{commit_path(1)}"]


@pytest.mark.parametrize("branch_id", ["", ".", "..", "a/b", "/"])
def test_an_id_that_is_no_name_of_a_folder_is_refused(branch_id: str) -> None:
    with pytest.raises(InvalidRequest, match="the name of a folder"):
        BranchStore(FakeStore(Clock()), branch_id, 0)


def test_a_branch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="expected a branch to begin at a version from 0 on"):
        BranchStore(FakeStore(Clock()), FIRST, -1)


class LogOfStore:
    """The log's folder of a store, with names as in any folder."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)
        return lambda path, *more: method(f"{LOG_FOLDER}/{path}", *more)

    def head(self, path: str) -> StoredObject | None:
        found = self._store.head(f"{LOG_FOLDER}/{path}")
        return None if found is None else replace(found, path=path)

    def list(self, prefix: str, *bounds: str | None) -> Iterator[StoredObject]:
        within = (None if path is None else f"{LOG_FOLDER}/{path}" for path in bounds)
        for found in self._store.list(f"{LOG_FOLDER}/{prefix}", *within):
            yield replace(found, path=found.path.removeprefix(f"{LOG_FOLDER}/"))

    def delete(self, paths: Iterable[str]) -> None:
        self._store.delete(f"{LOG_FOLDER}/{path}" for path in paths)


@pytest.mark.parametrize(
    "check",
    [
        test_contract.test_empty,
        *(partial(test_contract.test_what_was_put_is_there, put=put) for put in PUTS),
        test_contract.test_empty_object,
        test_contract.test_put_replaces,
        test_contract.test_put_if_absent_does_not_replace,
        test_contract.test_put_unsynced_does_not_replace,
        test_contract.test_ranges,
        test_contract.test_listing_is_sorted_recursive_and_of_the_folder_alone,
        *(
            partial(test_contract.test_paths_that_are_not_below_the_root_are_refused, path=path)
            for path in ("../x", "a/../b", "a//b", "./a", "a/", "a/.", "n\0ul")
        ),
        test_contract.test_delete_ignores_what_is_gone,
        test_contract.test_a_folder_is_no_object,
        test_contract.test_of_many_threads_one_creates,
        test_contract.test_sweeping_deletes_no_object,
    ],
)
def test_the_log_of_a_branch_keeps_the_contract_of_stores(
    check: Callable[[Any], None], tmp_path: Path
) -> None:
    check(LogOfStore(BranchStore(open_store(str(tmp_path)), FIRST, BASE)))


# --- requests -----------------------------------------------------------------------------------


def far_branch(table: LogOf) -> tuple[Distant, BranchStore]:
    store = Distant(table.clock, "s3://a")
    store.files = table.store.files
    return store, BranchStore(store, FIRST, BASE)


def test_over_a_network_both_logs_are_listed_in_one_round_trip(table: LogOf) -> None:
    store, branch = far_branch(table)
    branch.put(commit_path(BASE + 1), b"own")
    with store.rounds(2):
        assert len(paths(branch, LOG_FOLDER, listing_start(BASE), VERSIONS_END)) == len(KINDS) + 1
    child = BranchStore(branch, SECOND, BASE + 1)
    with store.rounds(3):
        paths(child, LOG_FOLDER)


def test_beyond_the_base_the_branchs_log_is_listed_alone(table: LogOf) -> None:
    store, branch = far_branch(table)
    branch.put(commit_path(BASE + 1), b"own")
    for start in (listing_start(BASE + 1), commit_path(BASE + 1)):
        with store.rounds(1):
            paths(branch, LOG_FOLDER, start)
        assert store.requests == [("list", folder_of(FIRST))]


class Counting(FakeStore):
    """A store that counts the objects that its listings return."""

    listed = 0

    def list(self, prefix: str, start_after: str | None = None, before: str | None = None) -> Any:
        for item in super().list(prefix, start_after, before):
            self.listed += 1
            yield item


def counting(table: LogOf) -> Counting:
    store = Counting(table.clock)
    store.files = table.store.files
    return store


def test_mains_later_versions_and_other_branches_are_not_listed_for_a_branch(
    table: LogOf,
) -> None:
    other = BranchStore(table.store, SECOND, BASE)
    for version in range(BASE + 1, BASE + 200):
        table.store.put(commit_path(version), b"main")
        other.put(commit_path(version), b"other")
    store = counting(table)
    branch = BranchStore(store, FIRST, BASE)
    branch.put(commit_path(BASE + 1), b"own")
    paths(branch, LOG_FOLDER, listing_start(BASE), VERSIONS_END)
    assert store.listed == len(KINDS) + 1


def _latest(store: Store, clock: Clock) -> Callable[[], object]:
    log = log_on(store, clock)
    log.latest()
    return log.latest


READERS: dict[str, Callable[[Store, Clock], Callable[[], object]]] = {
    "a log that is read again": _latest,
    "the whole log": lambda store, clock: log_on(store, clock).listing,
    "is it a table": lambda store, clock: log_on(store, clock).exists,
    "history": lambda store, clock: log_on(store, clock).history,
    "clean-up": lambda store, clock: partial(clean_log, log_on(store, clock), retention_ms=0),
    "the newest version": lambda store, clock: partial(newest_in_log, store, 0),
}


def test_a_folder_with_the_log_of_a_branch_alone_is_no_table_after_no_listing() -> None:
    store = Counting(Clock())
    BranchStore(store, FIRST, 4).put(commit_path(5), b"{}")
    assert not log_on(store, Clock()).exists()
    assert store.listed == 0


@pytest.mark.parametrize("reader", READERS)
def test_a_branch_of_many_commits_costs_main_no_listing(reader: str) -> None:
    table = LogOf().create()
    for version in range(1, 5):
        table.commit(version)
    counts = []
    for commits in (0, 1_000):
        branch = branch_of(table, 4)
        for version in range(5, 5 + commits):
            branch.put(commit_path(version), b"{}")
            branch.put(checksum_path(version), b"{}")
        store = counting(table)
        read = READERS[reader](store, table.clock)
        store.listed = 0
        read()
        counts.append((store.listed, [kind for kind, _ in store.requests].count("list")))
    assert counts[0] == counts[1]


# --- any sequence of requests -------------------------------------------------------------------

NAMES = [
    *(file_of(version, kind) for version in range(6) for kind in ("commit", "checksum")),
    *(file_of(version, kind) for version in (1, 3, 5) for kind in ("classic", "V2")),
    *(compaction(0, 2), compaction(1, 4)),
    *(LAST_CHECKPOINT_PATH, f"{SIDECAR_FOLDER}/s", f"{SIDECAR_FOLDER}/t"),
    *(f"{STAGED_FOLDER}/{1:020d}.x.json", f"{LOG_FOLDER}/.x", f"{LOG_FOLDER}/_set_aside/y"),
    *("a", "b/c", "_change_data/d", "_delta_logs", "_delta_log.x", f"{1:020d}.json"),
]
BOUNDS = st.one_of(
    st.none(),
    st.sampled_from([*NAMES, *map(listing_start, range(7)), VERSIONS_END, "_", "_delta_log0"]),
)

WHICH = st.integers(0, 3)


class Chain:
    """The expected files of main (without a parent) or of a branch, in dictionaries."""

    def __init__(
        self, store: Store, files: dict[str, bytes], parent: Chain | None = None, base: int = -1
    ) -> None:
        self.store = store
        self.table = files  # outside of logs
        self.log: dict[str, bytes] = {}
        self.parent = parent
        self.base = base

    def owner(self, path: str) -> dict[str, bytes] | None:
        """The dictionary that has the file; None for the parent's."""
        if not path.startswith(f"{LOG_FOLDER}/"):
            return self.table
        return None if self.parent and 0 <= version_of(path) <= self.base else self.log

    def get(self, path: str) -> bytes | None:
        owner = self.owner(path)
        found = None if owner is None else owner.get(path)
        if self.parent and (owner is None or (SIDECAR_FOLDER in path and found is None)):
            return self.parent.get(path)
        return found

    def listed_log(self, end: str) -> dict[str, bytes]:
        log = {path: data for path, data in self.log.items() if path < end}
        begins = commit_path(self.base + 1) in log
        if self.parent is None or (not begins and any("checkpoint." in path for path in log)):
            return log
        inherited = self.parent.listed_log(min(end, listing_start(self.base + 1))).items()
        return {path: data for path, data in inherited if self.owner(path) is None} | log

    def listed(self, start: str, end: str) -> dict[str, bytes]:
        """The files between two paths, by path."""
        is_beyond = start >= listing_start(self.base + 1)
        every = self.table | (self.log if is_beyond else self.listed_log(end))
        return {path: every[path] for path in sorted(every) if start < path < end}


class AnyRequests(RuleBasedStateMachine):
    """Requests to main, to two branches of it and to a branch of one of these, in any order."""

    @initialize(bases=st.tuples(*[st.integers(0, 3)] * 3))
    def begin(self, bases: tuple[int, int, int]) -> None:
        files: dict[str, bytes] = {}
        main = Chain(FakeStore(Clock()), files)
        first, second = (self.fork(main, one, base) for one, base in zip((FIRST, SECOND), bases))
        third = self.fork(first, THIRD, max(bases[0], bases[2]))
        self.chains = (main, first, second, third)

    def fork(self, parent: Chain, branch_id: str, base: int) -> Chain:
        return Chain(BranchStore(parent.store, branch_id, base), parent.table, parent, base)

    @rule(
        which=WHICH,
        path=st.sampled_from(NAMES),
        data=st.binary(max_size=2),
        put=st.sampled_from(PUTS),
    )
    def write(self, which: int, path: str, data: bytes, put: str) -> None:
        chain = self.chains[which]
        owner = chain.owner(path)
        if owner is None:
            with pytest.raises(InvalidRequest):
                getattr(chain.store, put)(path, data)
            return
        outcome = getattr(chain.store, put)(path, data)
        if put == "put_if_absent":
            assert (outcome is PutOutcome.CREATED) == (path not in owner)
        if put == "put" or path not in owner:
            owner[path] = data

    @rule(which=WHICH, paths=st.sets(st.sampled_from(NAMES)))
    def write_all(self, which: int, paths: set[str]) -> None:
        chain = self.chains[which]
        for path in paths:
            if (owner := chain.owner(path)) is not None:
                chain.store.put(path, b"all")
                owner[path] = b"all"

    @rule(which=WHICH, paths=st.lists(st.sampled_from(NAMES), max_size=4))
    def delete(self, which: int, paths: list[str]) -> None:
        chain = self.chains[which]
        chain.store.delete(iter(paths))
        for path in paths:
            if (owner := chain.owner(path)) is not None:
                owner.pop(path, None)

    @rule(which=WHICH, path=st.sampled_from(NAMES))
    def read(self, which: int, path: str) -> None:
        chain = self.chains[which]
        expected, found = chain.get(path), chain.store.head(path)
        if expected is None:
            assert found is None
            with pytest.raises(FileNotFoundError):
                chain.store.get(path)
            return
        assert found is not None
        assert (found.path, found.size_bytes) == (path, len(expected))
        assert chain.store.get(path) == expected
        assert chain.store.get_range(path, 1, 5) == expected[1:6]

    @rule(
        which=WHICH,
        prefix=st.sampled_from(["", LOG_FOLDER, LOG_FOLDER, f"{LOG_FOLDER}/", SIDECAR_FOLDER, "b"]),
        start=BOUNDS,
        end=BOUNDS,
    )
    def list(self, which: int, prefix: str, start: str | None, end: str | None) -> None:
        chain = self.chains[which]
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        found = (
            (item.path, item.size_bytes)
            for item in chain.store.list(prefix, start, end)
            if not item.path.startswith(f"{BRANCHES_FOLDER}/")
        )
        expected = chain.listed(start or "", "\U0010ffff" if end is None else end)
        assert [*found] == [
            (path, len(data)) for path, data in expected.items() if path.startswith(folder)
        ]


TestAnyRequests = AnyRequests.TestCase
TestAnyRequests.settings = settings(
    max_examples=100, stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
