"""The files of a catalog table's log, request by request: those up to the head, and no others."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import pytest

from tests.commit.lake_of import LakeOf
from tests.commit.log_of import FakeStore, add
from txlake.commit.catalog_managed import CatalogManagedFiles, CatalogTable
from txlake.errors import CorruptTable, Unavailable
from txlake.ports import Head, PutOutcome
from txlake.protocol.file_names import LOG_FOLDER, commit_path

PUBLISHED, PENDING, BEYOND = map(commit_path, (1, 2, 3))


class ReadOnly(FakeStore):
    """A store in which nobody publishes."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise Unavailable(f"{path}: read-only")


@pytest.fixture
def lake() -> LakeOf:
    """A table `a` at version 2, which isn't published."""
    lake = LakeOf().create("a")
    lake.append("a", add("x"))
    published = dict(lake.fake("a").files)
    lake.append("a", add("y"))
    lake.fake("a").files = published
    lake.ledger.tables["a"].published = 1
    store = ReadOnly(lake.clock, "memory://a")
    store.files = published
    lake.stores["a"] = store
    return lake


def files_of(lake: LakeOf, *, is_committing: bool = False) -> CatalogManagedFiles:
    catalog_table = CatalogTable(lake.ledger, "a")
    return CatalogManagedFiles(
        lake.store("a"), catalog_table, "a", lambda: is_committing, lake.system.monotonic_ms
    )


def version(head: Head | None) -> int | None:
    return None if head is None else head.version


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


def test_a_pending_version_is_what_was_ratified_whatever_file_is_there(lake: LakeOf) -> None:
    """Who commits on top of it doesn't publish first, and would follow another writer's file."""
    ratified = lake.ledger.tables["a"].commits[2].content
    assert ratified is not None
    lake.fake("a").put(PENDING, b"another writer's, and longer than nothing")
    files = files_of(lake, is_committing=True)
    assert files.get(PENDING) == ratified
    assert files.get_range(PENDING, 1, 5) == ratified[1:6]


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
    for end, expected in ((commits[2], commits[:2]), (BEYOND, commits)):
        up_to = files_of(lake).list(LOG_FOLDER, before=end)
        assert [one.path for one in up_to if one.path.endswith(".json")] == expected
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


def test_a_file_beyond_the_head_is_not_there(lake: LakeOf) -> None:
    lake.fake("a").put(commit_path(5), b"{}")
    assert files_of(lake).head(commit_path(5)) is None


def meanwhile(lake: LakeOf, happens: Callable[[], object]) -> None:
    """Something happens between the ledger's next answer and its arrival."""
    ask = lake.ledger.head

    def slow(table_id: str) -> Head | None:
        lake.ledger.head = ask  # type: ignore[method-assign]
        answer = ask(table_id)
        happens()
        return answer

    lake.ledger.head = slow  # type: ignore[method-assign]


def test_an_answer_that_was_overtaken_takes_nothing_back(lake: LakeOf) -> None:
    files = files_of(lake)

    def another_thread_is_answered_sooner() -> None:
        lake.append("a", add("z"))
        assert version(files.refresh()) == 3

    meanwhile(lake, another_thread_is_answered_sooner)
    assert version(files.refresh()) == 3
    assert files.head(BEYOND) is not None


def test_a_table_that_goes_while_its_log_is_looked_at_has_none(lake: LakeOf) -> None:
    def it_goes() -> None:
        lake.fake("a").put(BEYOND, b"{}")
        del lake.ledger.tables["a"]

    meanwhile(lake, it_goes)
    assert files_of(lake).refresh() is None


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
    files._head_lock = lock  # type: ignore[assignment]
    files.refresh()
    assert lock.taken == 1


def test_only_a_listing_of_the_log_is_held_against_the_catalog(lake: LakeOf) -> None:
    files = files_of(lake)
    files.refresh()
    for version in (0, 1):
        del lake.fake("a").files[commit_path(version)]
    assert list(files.list(f"{LOG_FOLDER}/_sidecars")) == []
    with pytest.raises(CorruptTable, match="published version 1"):
        list(files.list(LOG_FOLDER))


def test_a_version_of_which_a_checkpoint_alone_is_left_is_there(lake: LakeOf) -> None:
    files = files_of(lake)
    files.refresh()
    del lake.fake("a").files[PUBLISHED]
    lake.fake("a").files["_delta_log/00000000000000000001.checkpoint.parquet"] = (b"", 5)
    assert PENDING in [one.path for one in files.list(LOG_FOLDER)]


def test_a_listing_that_is_newer_than_what_is_known_is_followed(lake: LakeOf) -> None:
    files = files_of(lake)
    files.refresh()
    ledger = lake.ledger.tables["a"]
    ledger.head = ledger.published = 3
    for path in (PENDING, BEYOND):
        lake.fake("a").files[path] = (b"", 5)
    assert [one.path for one in files.list(LOG_FOLDER)][-1] == BEYOND
