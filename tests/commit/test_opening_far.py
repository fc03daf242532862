"""Tables are opened over a network: how many round trips that takes, and what stays as it is."""

from __future__ import annotations

import threading

import pytest

from tests.commit.distant import Distant
from tests.commit.lake_of import LakeOf
from tests.commit.log_of import Clock, FakeStore, add
from txlake.commit.checkpointing import write_checkpoint
from txlake.commit.requested_files import RequestedFiles
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, Unavailable
from txlake.log.snapshot import Snapshot
from txlake.ports import Head, PutOutcome, Store
from txlake.protocol.file_names import (
    LAST_CHECKPOINT_PATH,
    ClassicCheckpoint,
    checksum_path,
    commit_path,
    log_path,
)


class Far:
    """A lake with one table over a network, `a`."""

    def __init__(self, commits: int, interval: int | None = None) -> None:
        self.clock = Clock()
        self.lake = LakeOf(
            system=self.clock, store=lambda name: Distant(self.clock, f"s3://{name}")
        )
        set_interval = {} if interval is None else {"delta.checkpointInterval": str(interval)}
        self.lake.create("a", configuration=set_interval)
        self.append(commits)

    @property
    def store(self) -> Distant:
        found = self.lake.store("a")
        assert isinstance(found, Distant)
        return found

    def append(self, commits: int) -> None:
        first = self.lake.ledger.tables["a"].head + 1
        for version in range(first, first + commits):
            self.clock.time_ms += 1_000
            self.lake.append("a", add(f"x{version}"))

    def read(self, log: TableLog) -> Snapshot:
        """The newest version, as a transaction reads it whose statement has looked it up."""
        return log.at_sequence(self.lake.ledger.sequence(), self.lake.ledger.tables["a"].head)


def files(snapshot: Snapshot) -> list[str]:
    return sorted(one.path for one in snapshot.files.adds())


def expected(version: int) -> list[str]:
    return sorted(f"x{number}" for number in range(1, version + 1))


@pytest.mark.parametrize(
    ("version", "requests"),
    [
        (0, ["list", "commit 0", "checksum"]),
        (3, ["list", "commits 0 to 3", "checksum"]),
        (10, ["list", "checkpoint", "commit 10", "checksum"]),
        (13, ["list", "checkpoint", "commits 11 to 13", "checksum"]),
        (125, ["list", "checkpoint", "commits 121 to 125", "checksum"]),
    ],
)
def test_a_table_is_opened_in_one_round_trip(version: int, requests: list[str]) -> None:
    far = Far(version)
    log = far.lake.open("a")
    count = len(requests) + {3: 3, 13: 2, 125: 4}.get(version, 0)
    with far.store.rounds(count):
        snapshot = far.read(log)
    assert (snapshot.version, files(snapshot)) == (version, expected(version))


def test_a_checkpoint_elsewhere_takes_another_round_trip() -> None:
    far = Far(13, interval=7)
    log = far.lake.open("a")
    first = ["list", "a checkpoint that isn't there", *(11, 12, 13), "checksum"]
    with far.store.rounds(len(first), len(["checkpoint", *(8, 9, 10)])):
        snapshot = far.read(log)
    assert files(snapshot) == expected(13)


def test_without_a_checkpoint_nearby_the_hint_says_where_it_is() -> None:
    far = Far(121, interval=1_000)
    write_checkpoint(far.lake.open("a"), far.lake.open("a").snapshot(5))
    assert LAST_CHECKPOINT_PATH in far.store.files
    assert files(far.read(far.lake.open("a"))) == expected(121)


@pytest.mark.parametrize("commits", [1, 20])
def test_the_commits_of_others_take_one_round_trip(commits: int) -> None:
    far = Far(3)
    log = far.lake.open("a")
    far.read(log)
    far.append(commits)
    with far.store.rounds(1 + commits):
        snapshot = far.read(log)
    assert (snapshot.version, files(snapshot)) == (3 + commits, expected(3 + commits))


def test_far_behind_a_table_is_opened_anew_in_one_round_trip() -> None:
    far = Far(0)
    log = far.lake.open("a")
    far.read(log)
    far.append(101)
    with far.store.rounds(len(["list", "checkpoint", "commit", "checksum"])):
        snapshot = far.read(log)
    assert files(snapshot) == expected(101)


def test_the_newest_version_is_looked_for_once() -> None:
    far = Far(1)
    log = far.lake.open("a")
    with far.store.rounds(len(["list", *(0, 1), "checksum"])):
        log.latest()
    with far.store.rounds(1):
        log.latest()
    assert far.store.requests == [("head", commit_path(2))]
    far.append(1)
    with far.store.rounds(len(["list", "commit"])):
        assert log.latest().version == 2


def test_a_path_table_is_opened_in_three_round_trips() -> None:
    far = Far(13)
    with far.store.rounds(1, 1, len(["checkpoint", *(11, 12, 13), "checksum"])):
        snapshot = far.lake.plain("a").latest()
    assert files(snapshot) == expected(13)


@pytest.mark.parametrize("version", [13, 10])
def test_what_is_damaged_is_replaced(version: int) -> None:
    far = Far(version)
    far.store.files[log_path(ClassicCheckpoint(10))] = (b"damaged", 0)
    del far.store.files[checksum_path(version)]
    assert files(far.read(far.lake.open("a"))) == expected(version)


def test_a_missing_commit_is_named() -> None:
    far = Far(13)
    del far.store.files[commit_path(12)]
    with pytest.raises(CorruptTable, match=commit_path(12)):
        far.read(far.lake.open("a"))


@pytest.mark.no_interop("the log is ahead of the catalog on purpose")
@pytest.mark.parametrize("is_known", [True, False])
def test_a_log_that_is_ahead_is_refused(is_known: bool) -> None:
    far = Far(2)
    log = far.lake.open("a")
    if is_known:
        far.read(log)
        far.append(1)
    head = far.lake.ledger.tables["a"].head
    far.store.files[commit_path(head + 1)] = far.store.files[commit_path(head)]
    with pytest.raises(CorruptTable, match=r"didn't ratify.*recover"):
        far.read(log)


def refuse_puts(store: FakeStore) -> None:
    """The process that commits is killed before it publishes."""

    def refused(path: str, data: bytes) -> PutOutcome:
        raise Unavailable("killed")

    store.put_if_absent = refused  # type: ignore[method-assign]


def test_unpublished_commits_are_read_from_the_catalog_and_left_to_their_writer() -> None:
    far = Far(2)
    log = far.lake.open("a")
    far.read(log)
    put = far.store.put_if_absent
    refuse_puts(far.store)
    far.append(1)
    far.store.put_if_absent = put  # type: ignore[method-assign]
    with far.store.rounds(1):
        snapshot = far.read(log)
    assert far.store.requests == [("list", "_delta_log")]
    assert files(snapshot) == expected(3)
    assert commit_path(3) not in far.store.files
    log.forget()
    far.clock.time_ms += 10_000
    assert files(far.read(log)) == expected(3)
    assert commit_path(3) in far.store.files, "its writer is taken to be dead"


def test_in_a_local_store_who_meets_an_unpublished_commit_publishes_it() -> None:
    lake = LakeOf().create("a")
    lake.append("a", add("x1"))
    put = lake.fake("a").put_if_absent
    refuse_puts(lake.fake("a"))
    lake.append("a", add("x2"))
    lake.fake("a").put_if_absent = put  # type: ignore[method-assign]
    assert files(lake.open("a").at_sequence(lake.ledger.sequence(), 2)) == expected(2)
    assert commit_path(2) in lake.fake("a").files


@pytest.mark.parametrize("known", [None, Head(version=1)])
def test_a_copy_of_the_catalog_that_is_behind_is_not_relied_on(
    known: Head | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Far(2)
    monkeypatch.setattr(far.lake.ledger, "known_head", lambda _: known)
    assert files(far.read(far.lake.open("a"))) == expected(2)


def test_a_file_may_be_made_after_it_was_requested() -> None:
    store = Distant(Clock(), "s3://a")
    requested = RequestedFiles(store, ["x", "y"])
    with pytest.raises(FileNotFoundError):
        requested.get("x")
    store.put("y", b"made")
    assert requested.get("y") == b"made"
    assert requested.get_range("y", 1, 2) == b"ad"


def test_a_requested_file_is_read_once_and_a_part_of_it_is_cut_out() -> None:
    store = Distant(Clock(), "s3://a")
    store.put("x", b"bytes")
    requested = RequestedFiles(store, ["x"])
    requested.request(["x"])
    assert requested.get_range("x", 1, 2) == b"yt"
    assert store.requests == [("put", "x"), ("get", "x")]
    assert requested.get("x") == b"bytes"
    assert store.requests == [("put", "x"), ("get", "x"), ("get", "x")], "it is read anew"


def test_a_local_log_is_read_in_one_thread_and_in_order() -> None:
    clock, threads = Clock(), set[threading.Thread]()

    class Local(FakeStore):
        def _request(self, kind: str, path: str) -> None:
            super()._request(kind, path)
            threads.add(threading.current_thread())

    def store(name: str) -> Store:
        return Local(clock, f"memory://{name}")

    lake = LakeOf(system=clock, store=store).create("a")
    for number in range(13):
        lake.append("a", add(f"x{number + 1}"))
    lake.fake("a").requests.clear()
    snapshot = lake.open("a").at_sequence(lake.ledger.sequence(), 13)
    assert files(snapshot) == expected(13)
    assert threads == {threading.current_thread()}
    assert [kind for kind, _ in lake.fake("a").requests] == ["get", "list", *["get"] * 5]
