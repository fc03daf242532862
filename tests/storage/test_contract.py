"""What `ports.Store` promises, on every adapter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.storage.conftest import STORES, Placed
from txlake.errors import InvalidRequest
from txlake.ports import PutOutcome, Store
from txlake.storage import local_path, open_store

pytestmark = pytest.mark.parametrize("place", [*STORES, "branch"], indirect=True)

NAMES = [
    "plain.json",
    "day=2026-01-05/part.parquet",
    "with space",
    "percent%20sign",
    "percent%",
    "hash#1",
    "hash.json#1",
    "question?x=1&y",
    "quo'te\"d",
    "colon:semi;plus+at@",
    "back\\slash",
    "{curly}[square]<angle>|^`~*$!",
    "é漢🦆",
    ".hidden",
    "_underscore",
    "trailing dot.",
]


@pytest.fixture
def store(place: Placed) -> Store:
    return place.store


def _paths(
    store: Store, prefix: str = "", start_after: str | None = None, before: str | None = None
) -> list[str]:
    return [each.path for each in store.list(prefix, start_after, before)]


def test_empty(store: Store) -> None:
    assert _paths(store) == []
    assert _paths(store, "log") == []
    assert store.head("log/0") is None
    with pytest.raises(FileNotFoundError):
        store.get("log/0")
    with pytest.raises(FileNotFoundError):
        store.get_range("log/0", 0, 1)
    store.delete(["log/0"])
    store.delete([])


@pytest.mark.parametrize("put", ["put", "put_if_absent", "put_unsynced"])
def test_what_was_put_is_there(store: Store, put: str) -> None:
    data = bytes(range(256)) * 1000
    before = datetime.now(UTC).timestamp() * 1000
    getattr(store, put)("a/b/c", data)
    after = datetime.now(UTC).timestamp() * 1000
    assert store.get("a/b/c") == data
    found = store.head("a/b/c")
    assert found is not None
    assert (found.path, found.size_bytes) == ("a/b/c", len(data))
    assert before - 2000 <= found.modified_ms <= after + 2000  # S3 has whole seconds
    assert list(store.list("")) == [found]


def test_empty_object(store: Store) -> None:
    assert store.put_if_absent("empty", b"") is PutOutcome.CREATED
    assert store.get("empty") == b""
    assert store.put_if_absent("empty", b"x") is PutOutcome.EXISTS


def test_large_object(store: Store) -> None:
    data = b"0123456789abcdef" * (12 * 1024 * 1024 // 16)  # obstore splits plain puts of this size
    store.put("put", data)
    assert store.get("put") == data
    assert store.put_if_absent("created", data) is PutOutcome.CREATED
    assert store.get("created") == data


def test_put_replaces(store: Store) -> None:
    store.put("x", b"old and longer")
    store.put("x", b"new")
    assert store.get("x") == b"new"


def test_put_if_absent_does_not_replace(store: Store) -> None:
    assert store.put_if_absent("x", b"first") is PutOutcome.CREATED
    assert store.put_if_absent("x", b"second") is PutOutcome.EXISTS
    assert store.get("x") == b"first"
    store.put("y", b"put")
    assert store.put_if_absent("y", b"second") is PutOutcome.EXISTS
    store.delete(["x"])
    assert store.put_if_absent("x", b"third") is PutOutcome.CREATED
    assert store.get("x") == b"third"


def test_put_unsynced_does_not_replace(store: Store) -> None:
    store.put_unsynced("x", b"first")
    store.put_unsynced("x", b"second")
    assert store.get("x") == b"first"


def test_ranges(store: Store) -> None:
    store.put("x", b"0123456789")
    cases = [(0, 10), (0, 1), (3, 4), (9, 1), (8, 10), (10, 1), (50, 5), (4, 0)]
    assert [store.get_range("x", offset, length) for offset, length in cases] == [
        b"0123456789",
        b"0",
        b"3456",
        b"9",
        b"89",
        b"",
        b"",
        b"",
    ]


def test_listing_is_sorted_recursive_and_of_the_folder_alone(store: Store) -> None:
    names = ["a-1", "a/2", "a/b/3", "a/b-4", "a.5", "ab/6", "b", "a/é", "a/z", "a/b/c/d", "a0"]
    for each in names:
        store.put(each, b"")
    assert _paths(store) == sorted(names)
    below = sorted(each for each in names if each.startswith("a/"))
    assert _paths(store, "a") == below
    assert _paths(store, "a/") == below
    assert _paths(store, "a/b") == ["a/b/3", "a/b/c/d"]
    assert _paths(store, "b") == []
    for start in [*names, "", "a", "a/", "a/b/", "a/b/9", "zzz", "a/b/c"]:
        assert _paths(store, "", start) == sorted(each for each in names if each > start)
        assert _paths(store, "a", start) == [each for each in below if each > start]
        assert _paths(store, "", None, start) == sorted(each for each in names if each < start)
        assert _paths(store, "a", "a/b-4", start) == [
            each for each in below if "a/b-4" < each < start
        ]


# What a store can't keep as it is, it refuses.
REFUSED = {"hdfs": ":", "az": "\\"}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_literal(store: Store, name: str) -> None:
    scheme = store.url.split("://")[0].removeprefix("web")
    if REFUSED.get(scheme, "\0") in name:
        with pytest.raises(InvalidRequest, match="can't"):
            store.put_if_absent(name, b"1")
        return
    assert store.put_if_absent(name, b"1") is PutOutcome.CREATED
    assert store.put_if_absent(name, b"2") is PutOutcome.EXISTS
    assert store.get(name) == b"1"
    assert store.get_range(name, 0, 1) == b"1"
    assert _paths(store) == [name]
    found = store.head(name)
    assert found is not None
    assert found.path == name
    below = store.at(name + " folder")
    below.put("x", b"below")
    assert store.get(f"{name} folder/x") == b"below"
    store.delete([name, f"{name} folder/x"])
    assert _paths(store) == []


@pytest.mark.parametrize("path", ["", "/x", "../x", "a/../b", "a//b", "./a", "a/", "a/.", "n\0ul"])
def test_paths_that_are_not_below_the_root_are_refused(store: Store, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.get(path),
        lambda: store.get_range(path, 0, 1),
        lambda: store.head(path),
        lambda: store.put(path, b""),
        lambda: store.put_if_absent(path, b""),
        lambda: store.delete([path]),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest, match="not a path below"):
            call()
    assert _paths(store) == []


def test_delete_ignores_what_is_gone(store: Store) -> None:
    for name in ("a", "b", "c/d"):
        store.put(name, b"")
    store.delete(iter(["gone", "a", "c/gone", "c/d", "a", "c"]))
    assert _paths(store) == ["b"]


def test_a_folder_is_no_object(store: Store) -> None:
    store.put("a/b", b"x")
    assert store.head("a") is None
    with pytest.raises(FileNotFoundError):
        store.get("a")
    with pytest.raises(FileNotFoundError):
        store.get_range("a", 0, 1)
    with pytest.raises(FileNotFoundError):
        store.get("a/b/c")
    assert store.head("a/b/c") is None
    assert _paths(store, "a/b/c") == []
    store.delete(["a/b/c"])
    assert _paths(store) == ["a/b"]


def test_stores_of_folders(store: Store) -> None:
    below = store.at("tables/one two%")
    assert below.url == store.url + "/tables/one%20two%25"
    assert store.at("").url == store.url
    below.put("log/0", b"0")
    below.at("log").put("1", b"1")
    assert _paths(below) == ["log/0", "log/1"]
    assert _paths(below.at("log"), start_after="0") == ["1"]
    assert _paths(store) == ["tables/one two%/log/0", "tables/one two%/log/1"]


def test_another_store_at_the_same_url_sees_the_same(store: Store, place: Placed) -> None:
    store.put("x y", b"1")
    other = open_store(store.url, place.options)
    assert other.url == store.url
    assert other.get("x y") == b"1"
    assert other.put_if_absent("x y", b"2") is PutOutcome.EXISTS


def test_is_safe_and_leaves_nothing_of_the_test(store: Store) -> None:
    store.ensure_safe()
    assert _paths(store) == []
    store.ensure_safe()
    store.at("table").ensure_safe()
    if (folder := local_path(store.url)) is not None:
        assert list(Path(folder).iterdir()) == []


def test_of_many_threads_one_creates(store: Store) -> None:
    writers, rounds = 6, 12
    start = threading.Barrier(writers)

    def work(writer: int) -> list[PutOutcome]:
        outcomes = []
        for number in range(rounds):
            start.wait(120)
            outcomes.append(store.put_if_absent(f"log/{number}", f"{writer}".encode() * 1000))
        return outcomes

    with ThreadPoolExecutor(writers) as pool:
        by_writer = list(pool.map(work, range(writers)))
    for number in range(rounds):
        outcomes = [each[number] for each in by_writer]
        winners = [writer for writer, each in enumerate(outcomes) if each is PutOutcome.CREATED]
        assert len(winners) == 1
        assert outcomes.count(PutOutcome.EXISTS) == writers - 1
        assert store.get(f"log/{number}") == f"{winners[0]}".encode() * 1000


def test_put_is_never_half_visible(store: Store) -> None:
    whole = {bytes([letter]) * 100_000 for letter in b"abc"}
    store.put("x", next(iter(whole)))
    stop = threading.Event()

    def read() -> list[bytes]:
        seen = []
        while not stop.is_set():
            seen.append(store.get("x"))
        return seen

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for _ in range(10):
                for data in whole:
                    store.put("x", data)
        finally:
            stop.set()
        assert set(reader.result(300)) <= whole


def test_sweeping_deletes_no_object(store: Store) -> None:
    names = ["a", "log/b", "log/.txlake-x", "log/x.tmp"]
    for name in names:
        store.put(name, b"x")
    store.sweep("", 2**53)
    store.sweep("log", 2**53)
    store.sweep("not there", 2**53)
    assert _paths(store) == sorted(names)
