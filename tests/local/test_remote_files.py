"""A statement fetches of files in other stores the bytes that it needs, once, side by side."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commit.log_of import add, metadata
from tests.session.offline import Offline
from txlake.errors import InvalidRequest, Unavailable
from txlake.local import file_rows, remote_files
from txlake.local.candidate_rows import arrow_rows_at, find_candidates, stored_fields
from txlake.local.choice import Declined
from txlake.local.plain_rows import plain_rows
from txlake.local.remote_files import RemoteFile, StatementReads
from txlake.local.table import LocalTable
from txlake.ports import Store
from txlake.protocol.reach import ANYWHERE
from txlake.sql.statements import SqlText

CONTENT = random.Random(1).randbytes(300_000)
TIMEOUT_S = 30


class Bucket:
    """A store over a network: answers reads of `CONTENT`, and notes them; `before` delays them."""

    url = "s3://b"

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.noted: list[tuple[int, int]] = []
        self._before = before

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        self._before()
        self.noted.append((offset, offset + length))
        return CONTENT[offset : offset + length]


def remote(bucket: Bucket, reads: StatementReads | None = None, name: str = "f") -> RemoteFile:
    return (reads or StatementReads()).file(cast(Store, bucket), name, len(CONTENT))


def fetch(file: RemoteFile, *ranges: tuple[int, int]) -> None:
    file._reads.fetch([(file, ranges)])


def test_ranges_near_each_other_take_one_request() -> None:
    read = Bucket()
    fetch(remote(read), (200_000, 200_010), (0, 10), (20, 30), (5, 15))
    assert sorted(read.noted) == [(0, 30), (200_000, 200_010)]


def test_a_long_range_takes_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_REQUEST_BYTES_MAX", 100)
    read = Bucket()
    fetch(remote(read), (0, 250))
    assert sorted(read.noted) == [(0, 100), (100, 200), (200, 250)]


def test_no_byte_is_fetched_twice() -> None:
    read = Bucket()
    file = remote(read)
    fetch(file, (100, 200))
    fetch(file, (0, 300))
    assert sorted(read.noted) == [(0, 100), (100, 200), (200, 300)]
    assert file.read(50, 200) == CONTENT[50:250]
    assert len(read.noted) == 3
    assert file.read(299, 2) == CONTENT[299:301]
    assert read.noted[3:] == [(300, 301)]


@pytest.mark.parametrize("seed", range(20))
def test_reads_are_those_of_the_file(seed: int) -> None:
    draw = random.Random(seed)
    read = Bucket()
    file = remote(read)
    for _ in range(30):
        ranges = []
        for _ in range(draw.randint(0, 4)):
            start = draw.randrange(len(CONTENT))
            ranges.append((start, min(len(CONTENT), start + draw.randint(1, 40_000))))
        fetch(file, *ranges)
        offset, length = draw.randrange(len(CONTENT)), draw.randint(0, 50_000)
        assert file.read(offset, length) == CONTENT[offset : offset + length]
    fetched = sorted(read.noted)
    assert all(one[1] <= other[0] for one, other in pairwise(fetched))
    with file.open() as source:
        assert source.read() == CONTENT
        source.seek(10)
        assert source.read(5) == CONTENT[10:15]


def test_all_files_of_a_fetch_are_asked_for_side_by_side() -> None:
    together = threading.Barrier(6, timeout=TIMEOUT_S)

    bucket = Bucket(together.wait)  # passes only while all requests are on their way
    reads = StatementReads()
    files = [remote(bucket, reads, name) for name in "abc"]
    reads.fetch([(file, [(0, 10), (200_000, 200_010)]) for file in files])
    assert [file.read(0, 10) for file in files] == [CONTENT[:10]] * 3


def test_a_statement_fetches_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "FETCHED_BYTES_MAX", 250)
    read = Bucket()
    file = remote(read)
    fetch(file, (0, 200))
    with pytest.raises(Declined, match="more than 250 bytes"):
        fetch(file, (200, 251))
    assert read.noted == [(0, 200)]
    fetch(file, (200, 250))


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def test_what_a_store_refuses_is_left_to_spark() -> None:
    file = remote(Bucket(failing(InvalidRequest("no permission"))))
    with pytest.raises(Declined, match="no permission"):
        file.read(0, 1)


def test_a_store_that_does_not_answer_fails_the_statement() -> None:
    file = remote(Bucket(failing(Unavailable("no answer"))))
    with pytest.raises(Unavailable, match="no answer"):
        file.read(0, 1)


def test_a_file_shorter_than_logged_is_left_to_spark() -> None:
    file = StatementReads().file(cast(Store, Bucket()), "f", len(CONTENT) + 1)
    with pytest.raises(ValueError, match="not 1 as the log says"):
        file.read(len(CONTENT), 1)


# Tables


class Recording:
    """A store of which each read is noted: the file, and the bytes' offset and length."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.noted: list[tuple[str, int, int]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        self.noted.append((path, offset, length))
        return self._inner.get_range(path, offset, length)


class Table:
    """A table in memory of files that `pq.write_table` wrote; `batches` counts round trips."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        files: dict[str, pa.Table],
        elsewhere: str | None = None,
    ) -> None:
        """`elsewhere`: the URL of one more file, whose rows aren't known."""
        self._offline = Offline()
        place = f"{self._offline.place}/t"
        adds = []
        for name, rows in files.items():
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink, row_group_size=20_000)
            data = sink.getvalue().to_pybytes()
            self._offline.engine.open_store(place, {}).put(name, data)
            adds.append(add(name, size=len(data)))
        if elsewhere is not None:
            adds.append(add(elsewhere))
        self._offline.path_table(place, *adds, settings=metadata())
        self._handle = self._offline.at(place)
        self.store = Recording(self._handle.store)
        self.batches: list[int] = []
        fetched = StatementReads.fetch

        def counting(reads: StatementReads, ranges_by_file: object) -> None:
            before = len(self.store.noted)
            fetched(reads, ranges_by_file)  # type: ignore[arg-type]
            if len(self.store.noted) > before:
                self.batches.append(len(self.store.noted) - before)

        monkeypatch.setattr(StatementReads, "fetch", counting)

    def work(self) -> LocalTable:
        """The table, as a new statement sees it."""
        self.store.noted.clear()
        self.batches.clear()
        handle = self._handle
        made: LocalTable = self._offline.plane.table(
            handle.log.latest(),
            self.store,  # type: ignore[arg-type]
            system=self._offline.engine.system,
            name="t",
            allowed=lambda: [ANYWHERE],
        )
        return made

    def select(
        self, condition: str | None, limit: int | None = None, column: str = "id"
    ) -> list[object] | None:
        """The column's values that the driver finds; None if it declines."""
        work = self.work()
        predicate = work.predicate(None if condition is None else SqlText(condition), None)
        files = work.snapshot.select(predicate)
        rows = plain_rows(work, files, predicate, limit, [column])
        return None if rows is None else rows.column(column).to_pylist()

    def bytes(self) -> int:
        return sum(length for _, _, length in self.store.noted)


def rows(first: int, count: int) -> pa.Table:
    draw = random.Random(first)
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "p": [draw.randbytes(40).hex() for _ in range(count)],
        }
    )


def test_a_small_file_takes_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {"a": rows(0, 1000)})
    assert t.select("id = 7") == [7]
    assert len(t.store.noted) == 1


def test_a_row_by_key_takes_two_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {"a": rows(0, 100_000), "b": rows(100_000, 100_000)})
    assert t.select("id = 130000", column="p") == [rows(100_000, 100_000)["p"][30_000].as_py()]
    assert len(t.batches) == 2
    assert t.batches[0] == 2  # the footers of both files
    assert {path for path, _, _ in t.store.noted[2:]} == {"b"}  # by the footers' numbers
    assert t.bytes() < 2_500_000  # one row group of ten, of 80 bytes a row
    assert t.select("id = 130001 OR id = 5") == [5, 130_001]
    assert len(t.batches) == 2


def test_only_the_columns_of_a_query_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {"a": rows(0, 100_000)})
    assert t.select("id = 70000") == [70_000]
    assert t.bytes() < 500_000  # the texts of a row group have 1.6 MB


def test_columns_of_many_row_groups_wait_for_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {"a": rows(0, 100_000)})
    work = t.work()
    predicate = work.predicate(SqlText("id > 10 AND id % 100000 = 70000"), None)
    assert predicate is not None
    files = work.snapshot.select(None)
    found = find_candidates(work, files, predicate, 100_000, later=stored_fields(work))
    assert len(t.batches) == 2
    assert t.bytes() < 2_000_000  # only ids: all texts have 8 MB
    group = {0: found.positions[0][found.positions[0] >= 80_000]}
    arrow_rows_at(work, files, group)
    assert len(t.batches) == 3


def test_rows_are_read_once_for_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {"a": rows(0, 100_000)})
    work = t.work()
    predicate = work.predicate(SqlText("id = 30000"), None)
    assert predicate is not None
    files = work.snapshot.select(None)
    for _ in range(2):
        found = find_candidates(work, files, predicate, 10)
        table = arrow_rows_at(work, files, found.positions)
    assert table.column("p").to_pylist() == [rows(0, 100_000).column("p")[30_000].as_py()]
    spans = sorted((offset, offset + length) for _, offset, length in t.store.noted)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_a_limit_opens_no_more_files_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {name: rows(0, 10) for name in "abc"})
    found = t.select(None, 5)
    assert found == [0, 1, 2, 3, 4]
    assert [path for path, _, _ in t.store.noted] == ["a"]
    assert t.select(None) == [*range(10)] * 3
    assert t.batches == [3]


def test_spark_reads_what_is_too_much_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {"a": rows(0, 100_000)})
    monkeypatch.setattr(remote_files, "FETCHED_BYTES_MAX", 1_000_000)
    assert t.select("id = 30000", column="p") is None
    assert len(t.batches) == 1  # the footer says how much it is


def test_spark_reads_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {f"f{number}": rows(0, 1) for number in range(65)})
    assert t.select("id = 0") is None
    assert t.select(None) is None
    assert t.store.noted == []


def test_spark_reads_files_of_stores_that_only_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Table(monkeypatch, {"a": rows(0, 10)}, elsewhere="wasbs://container@account/f")
    assert t.select("id = 5") is None
    assert t.select(None) is None
    assert t.store.noted == []


def test_files_are_decoded_in_order_by_at_most_eight_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    names = set()

    def decode(file: int) -> int:
        names.add(threading.current_thread().name)
        return 2 * file

    assert file_rows.decode_each(decode, range(1000)) == [2 * file for file in range(1000)]
    assert len(names) <= 8
    assert threading.current_thread().name not in names


def test_one_file_is_decoded_without_another_thread() -> None:
    assert file_rows.decode_each(lambda _: threading.get_ident(), ["a"]) == [threading.get_ident()]
    assert file_rows.decode_each(lambda _: threading.get_ident(), []) == []
