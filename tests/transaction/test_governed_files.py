"""The files of a catalog table's log, request by request: those up to the head, and no others."""

from __future__ import annotations

from types import TracebackType

import pytest

from tests.transaction.lake_of import LakeOf
from tests.transaction.log_of import FakeStore, add
from txlake.errors import Unavailable
from txlake.ports import PutOutcome
from txlake.protocol.file_names import LOG_FOLDER, commit_path
from txlake.transaction.governed import Governed, GovernedFiles

PUBLISHED, PENDING, BEYOND = map(commit_path, (1, 2, 3))


class ReadOnly(FakeStore):
    """A store in which nobody publishes."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise Unavailable(f"{path}: read-only")


@pytest.fixture
def lake() -> LakeOf:
    """A table `a` at version 2, which isn't published, and a file of a version that isn't one."""
    lake = LakeOf().create("a")
    lake.append("a", add("x"))
    published = dict(lake.fake("a").files)
    lake.append("a", add("y"))
    lake.fake("a").files = published
    lake.ledger.tables["a"].published = 1
    store = ReadOnly(lake.clock, "memory://a")
    store.files = published
    store.files[BEYOND] = (b"{}", 5)
    lake.stores["a"] = store
    return lake


def files_of(lake: LakeOf) -> GovernedFiles:
    governed = Governed(lake.ledger, "a")
    return GovernedFiles(lake.store("a"), governed, "a", lambda: False)


def test_bytes_are_there_up_to_the_head(lake: LakeOf) -> None:
    files = files_of(lake)
    ratified = lake.ledger.tables["a"].commits[2].content
    assert ratified is not None
    assert files.get(PENDING) == ratified
    assert files.get_range(PENDING, 1, 5) == ratified[1:6]
    assert files.get(PUBLISHED) == lake.fake("a").files[PUBLISHED][0]
    assert files.get_range(PUBLISHED, 0, 3) == files.get(PUBLISHED)[:3]
    for path in (BEYOND, "_delta_log/_last_checkpoint"):
        with pytest.raises(FileNotFoundError):
            files.get(path)
        with pytest.raises(FileNotFoundError):
            files.get_range(path, 0, 1)


def test_sizes_and_times_are_there_up_to_the_head(lake: LakeOf) -> None:
    files = files_of(lake)
    assert files.head(PUBLISHED) == lake.store("a").head(PUBLISHED)
    pending = files.head(PENDING)
    assert pending is not None
    assert pending.size_bytes == len(files.get(PENDING))
    assert files.head(BEYOND) is None
    assert files.head("_delta_log/_last_checkpoint") is None


def test_the_listing_goes_up_to_the_head(lake: LakeOf) -> None:
    commits = [commit_path(version) for version in range(3)]
    found = [one.path for one in files_of(lake).list(LOG_FOLDER) if one.path.endswith(".json")]
    assert found == commits
    after = files_of(lake).list(LOG_FOLDER, commits[1])
    assert [one.path for one in after if one.path.endswith(".json")] == commits[2:]
    assert list(files_of(lake).list(LOG_FOLDER, commits[2])) == []
    assert list(files_of(lake).list(f"{LOG_FOLDER}/_sidecars")) == []


def test_a_published_commit_is_listed_as_its_file(lake: LakeOf) -> None:
    files = files_of(lake)
    files.refresh()  # and then another publishes
    lake.fake("a").files[PENDING] = (b"published", 7)
    (found,) = (one for one in files.list(LOG_FOLDER) if one.path == PENDING)
    assert (found.size_bytes, found.modified_ms) == (9, 7)


def test_a_table_that_the_catalog_does_not_have_has_no_log(lake: LakeOf) -> None:
    files = files_of(lake)
    files.refresh()
    del lake.ledger.tables["a"]
    assert files.refresh() is None
    assert [one for one in files.list(LOG_FOLDER) if one.path.endswith(".json")] == []
    with pytest.raises(FileNotFoundError):
        files.get(PUBLISHED)


def test_what_is_known_is_not_asked_for_again(lake: LakeOf) -> None:
    files = files_of(lake)
    files.refresh()
    lake.ledger.requests.clear()
    files.get(PUBLISHED)
    list(files.list(LOG_FOLDER))
    assert lake.ledger.requests == []
    assert files.head(BEYOND) is None
    assert lake.ledger.requests == ["head"]


class Watched:
    """A lock that counts who took it."""

    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def test_threads_replace_what_is_known_one_after_the_other(lake: LakeOf) -> None:
    files, lock = files_of(lake), Watched()
    files._keeping = lock  # type: ignore[assignment]
    files.refresh()
    assert lock.taken == 1
