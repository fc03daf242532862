"""The self-test of put-if-absent, and the stores that fail it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage import servers
from tests.storage.conftest import Scripted
from tests.storage.proxy import Answer, GoogleFront, Request, proxying
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome, Store
from txlake.storage import open_store
from txlake.storage.local import LocalStore
from txlake.storage.locations import locate
from txlake.storage.proof import Proof, try_store


class Altered:
    """A store in memory whose put-if-absent is the test's."""

    def __init__(self, put_if_absent: Callable[[Store, str, bytes], PutOutcome]) -> None:
        self._inner = open_store(f"memory://proof-{id(self)}")
        self._put_if_absent = put_if_absent
        self.puts = 0
        self.deletable = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.puts += 1
        return self._put_if_absent(self._inner, path, data)

    def delete(self, paths: Iterable[str]) -> None:
        if not self.deletable:
            raise InvalidRequest("can't delete: permission denied")
        self._inner.delete(paths)


def _altered(put_if_absent: Callable[[Store, str, bytes], PutOutcome]) -> tuple[Altered, Store]:
    altered = Altered(put_if_absent)
    return altered, altered  # type: ignore[return-value]


def _overwrites(store: Store, path: str, data: bytes) -> PutOutcome:
    store.put(path, data)
    return PutOutcome.CREATED


def _overwrites_and_denies_it(store: Store, path: str, data: bytes) -> PutOutcome:
    there = store.head(path) is not None
    store.put(path, data)
    return PutOutcome.EXISTS if there else PutOutcome.CREATED


def _forgets(store: Store, path: str, data: bytes) -> PutOutcome:
    outcome = store.put_if_absent(path, data)
    return PutOutcome.UNKNOWN if outcome is PutOutcome.CREATED else outcome


def _forgets_refusals(store: Store, path: str, data: bytes) -> PutOutcome:
    outcome = store.put_if_absent(path, data)
    return PutOutcome.UNKNOWN if outcome is PutOutcome.EXISTS else outcome


def _sends_twice(store: Store, path: str, data: bytes) -> PutOutcome:
    """A client below repeats each request, and the second answer arrives."""
    store.put_if_absent(path, data)
    return store.put_if_absent(path, data)


def _honest(store: Store, path: str, data: bytes) -> PutOutcome:
    return store.put_if_absent(path, data)


@pytest.mark.parametrize("behaviour", [_overwrites, _overwrites_and_denies_it])
def test_an_unsafe_store_is_refused_by_name(
    behaviour: Callable[[Store, str, bytes], PutOutcome],
) -> None:
    _, store = _altered(behaviour)
    with pytest.raises(InvalidRequest, match="is unsafe") as caught:
        try_store(store)
    assert store.url in str(caught.value)
    assert list(store.list("")) == []


def test_a_client_that_sends_requests_twice_is_no_fault_of_the_store() -> None:
    _, store = _altered(_sends_twice)
    try_store(store)
    assert list(store.list("")) == []


@pytest.mark.parametrize("behaviour", [_forgets, _forgets_refusals])
def test_lost_replies_decide_nothing(
    behaviour: Callable[[Store, str, bytes], PutOutcome],
) -> None:
    altered, store = _altered(behaviour)
    proof = Proof()
    for _ in range(2):  # and nothing is remembered
        with pytest.raises(Unavailable, match="no clear reply; try again"):
            proof.ensure(store)
    altered._put_if_absent = _honest
    proof.ensure(store)
    assert list(store.list("")) == []


def test_a_probe_that_nobody_may_delete_is_no_failure() -> None:
    altered, store = _altered(_honest)
    altered.deletable = False
    try_store(store)
    assert len(list(store.list("_txlake_probe"))) == 1


class GatheringLock:
    """A lock that lets no thread in before all threads have come to it."""

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._gathering = threading.Barrier(threads)

    def __enter__(self) -> None:
        self._gathering.wait(120)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


def test_threads_that_ask_together_test_the_store_once() -> None:
    """All threads find that the store is untested, before the first of them tests it."""
    threads = 8
    proof = Proof()
    lock = GatheringLock(threads)
    proof._lock = lock  # type: ignore[assignment]
    is_locked: list[bool] = []

    def recording(store: Store, path: str, data: bytes) -> PutOutcome:
        is_locked.append(lock.locked())
        return _honest(store, path, data)

    altered, store = _altered(recording)
    with ThreadPoolExecutor(threads) as pool:
        has_tested = list(pool.map(lambda _: proof.ensure(store), range(threads)))
    assert altered.puts == 2
    assert is_locked == [True, True]
    assert has_tested.count(True) == 1


def test_a_folder_is_tidied_up_after_the_one_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(locate(tmp_path), Proof())
    store.ensure_safe()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("os.rmdir", None)  # each commit asks whether the store is safe
    store.ensure_safe()


def test_a_bucket_that_ignores_the_condition(scripted: Scripted) -> None:
    scripted.refuses = False
    store = open_store("s3://unsafe/t", scripted.options)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="the store s3://unsafe/t is unsafe"):
            store.ensure_safe()
    assert store.head("log/0") is None  # reading goes on


class Forgetful(GoogleFront):
    """What loses the condition of a request on its way."""

    def answer(self, request: Request) -> Answer:
        kept = {k: v for k, v in request.headers.items() if not k.startswith("x-goog-if")}
        return super().answer(replace(request, headers=kept))


@pytest.mark.peer("fake-gcs-server")
def test_a_google_store_that_ignores_the_condition(servers_folder: Path) -> None:
    with servers.gcs_server(servers_folder) as address, proxying(Forgetful(address)) as front:
        store = open_store("gs://lake/unsafe", servers.gcs_options_of(front.address))
        with pytest.raises(InvalidRequest, match="the store gs://lake/unsafe is unsafe"):
            store.ensure_safe()
        assert list(store.list("")) == []


def test_a_bucket_that_lacks_the_condition(scripted: Scripted) -> None:
    scripted.put_status, scripted.keeps = 501, False
    store = open_store("s3://lacking/t", scripted.options)
    with pytest.raises(InvalidRequest, match="unsafe or incomplete"):
        store.ensure_safe()


def test_once_for_a_bucket_in_a_process(scripted: Scripted) -> None:
    open_store("s3://once/t", scripted.options).ensure_safe()
    assert scripted.puts == 2
    open_store("s3://once/other", scripted.options).ensure_safe()
    assert scripted.puts == 2
    open_store("s3://another", scripted.options).ensure_safe()
    assert scripted.puts == 4


def test_once_for_a_local_folder_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[str] = []
    put_if_absent = LocalStore.put_if_absent

    def counted(self: LocalStore, path: str, data: bytes) -> PutOutcome:
        puts.append(path)
        return put_if_absent(self, path, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", counted)
    store = open_store(tmp_path / "t")
    store.ensure_safe()
    store.ensure_safe()
    store.at("below").ensure_safe()
    open_store(tmp_path / "t").ensure_safe()
    assert len(puts) == 2
    open_store(tmp_path / "u").ensure_safe()
    assert len(puts) == 4


def test_an_unsafe_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put_if_absent(self: LocalStore, path: str, data: bytes) -> PutOutcome:
        self.put(path, data)
        return PutOutcome.CREATED

    monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
    with pytest.raises(InvalidRequest, match="unsafe"):
        open_store(tmp_path / "t").ensure_safe()


def test_many_processes_may_try_one_folder_at_a_time(tmp_path: Path) -> None:
    # Each has a proof of its own, as processes do; the folder of the probes comes and goes.
    start = threading.Barrier(6)

    def work(_: int) -> None:
        own = LocalStore(locate(tmp_path), Proof())
        start.wait(120)
        own.ensure_safe()

    for _ in range(20):
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    assert list(tmp_path.iterdir()) == []
