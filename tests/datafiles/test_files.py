"""New files of other stores than this machine are written side by side, and all or none stay."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from txlake.datafiles import files
from txlake.datafiles.files import Uploads
from txlake.errors import Unavailable
from txlake.ports import Store
from txlake.storage import open_store

TIMEOUT_S = 30


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://uploads/{request.node.name}"


def names(url: str) -> list[str]:
    return [stored.path for stored in open_store(url).list("")]


class _Store:
    """The store of a folder, whose `put` does something before."""

    def __init__(self, inner: Store, before: object) -> None:
        self._inner = inner
        self._before = before

    def put(self, path: str, data: bytes) -> None:
        assert callable(self._before)
        self._before(path)
        self._inner.put(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        self._inner.delete(paths)


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What every `put` calls before with the file's name; the last one counts."""
    called: list[object] = [lambda _: None]
    monkeypatch.setattr(
        files, "open_store", lambda url, options: _Store(open_store(url, options), called[-1])
    )
    return called


def test_files_are_written_side_by_side(url: str, before: list[object]) -> None:
    together = threading.Barrier(4, timeout=TIMEOUT_S)
    before.append(lambda _: together.wait(TIMEOUT_S))  # passes only while all are on their way
    with Uploads() as uploads:
        for name in "abc":
            uploads.put(f"{url}/{name}", name.encode(), {})
        together.wait(TIMEOUT_S)
    assert names(url) == ["a", "b", "c"]
    assert open_store(url).get("b") == b"b"


def test_none_stays_if_one_fails(url: str, before: list[object]) -> None:
    def fail(name: str) -> None:
        if name == "b":
            raise Unavailable("no answer")

    before.append(fail)
    uploads = Uploads()
    for name in "abc":
        uploads.put(f"{url}/{name}", b"", {})
    with pytest.raises(Unavailable, match="no answer"):
        files.wait_or_defer(uploads)
    assert names(url) == []


def test_none_stays_if_the_statement_fails(url: str) -> None:
    def statement() -> None:
        with Uploads() as uploads:
            uploads.put(f"{url}/a", b"", {})
            files.wait_or_defer(uploads)
            uploads.put(f"{url}/b", b"", {})
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        statement()
    assert names(url) == []


def test_only_so_many_bytes_wait(
    url: str, before: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PENDING_BYTES_MAX", 10)
    written: list[str] = []
    before.append(written.append)
    with Uploads() as uploads:
        uploads.put(f"{url}/a", b"123456", {})
        uploads.put(f"{url}/b", b"123456", {})
        assert names(url)[:1] == ["a"]
    assert written == ["a", "b"]
