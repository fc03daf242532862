"""Batches that are read in a thread of their own: all of them, in order, and no more than asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from txlake.datafiles.read_ahead import read_ahead


def _batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([number], pa.int64())})


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield batch.column(0)[0].as_py()


@pytest.mark.parametrize("bytes_max", [0, 1, 20, 10_000])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_all_batches_come_in_their_order(bytes_max: int, count: int) -> None:
    with read_ahead(map(_batch, range(count)), bytes_max) as batches:
        assert list(_numbers(batches)) == list(range(count))


def test_they_are_read_in_another_thread_and_that_ends() -> None:
    seen: list[threading.Thread] = []

    def source() -> Iterator[pa.RecordBatch]:
        seen.append(threading.current_thread())
        yield _batch(1)

    with read_ahead(source(), 100) as batches:
        assert list(_numbers(batches)) == [1]
    assert seen[0] is not threading.current_thread()
    assert not seen[0].is_alive()


def test_no_more_is_read_than_may_wait() -> None:
    read = []
    third = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            read.append(number)
            if number == 2:
                third.set()
            yield _batch(number)

    with read_ahead(source(), 3 * 8) as batches:
        assert third.wait(30)
        assert next(_numbers(batches)) == 0
    assert len(read) <= 5  # three that waited, one more for the one that was taken, and the next


def test_what_the_source_raises_comes_after_what_it_gave() -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield _batch(1)
        raise OSError("the disk is gone")

    with read_ahead(source(), 100) as batches:
        numbers = _numbers(batches)
        assert next(numbers) == 1
        with pytest.raises(OSError, match="the disk is gone"):
            next(numbers)


def test_a_failing_consumer_leaves_no_thread() -> None:
    before = threading.active_count()

    def write() -> None:
        with read_ahead(map(_batch, range(1_000)), 8) as batches:
            next(batches)
            raise RuntimeError("the writer failed")

    with pytest.raises(RuntimeError, match="the writer failed"):
        write()
    assert threading.active_count() == before
