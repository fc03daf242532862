"""Micro-batches as transactions over several tables, without Spark: what is done, and what once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlake
from txlake.errors import Conflict, CorruptTable, InvalidRequest
from txlake.lake.micro_batches import BatchWork, TableSink
from txlake.lake.streaming.progress import FOLDER, Progress
from txlake.sql.statements import table_of

QUERY = "0000-1111"
BATCH: Any = pa.table({"id": [1, 2]})
Work = Callable[[Any, Any], object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[txlake.Lake]:
    with txlake.connect(str(tmp_path / "lake")) as opened:
        for name in ("one", "two"):
            opened.write(pa.table({"id": pa.array([], pa.int64())}), name)
        yield opened


def work(tx: Any, batch: Any) -> None:
    for name in ("one", "two"):
        tx.write(batch, name, "append")


def commit(lake: txlake.Lake, number: int, done: Work = work, **given: Any) -> None:
    with lake.session() as own:
        batches = BatchWork(work=done, checkpoint="", **given)
        batches.commit(own, QUERY, number, BATCH)


def rows(lake: txlake.Lake, name: str) -> int:
    """How often the batch was added: each time is a file."""
    handle = lake._session.snapshot(table_of(name))
    return len(list(handle.files.adds()))


def test_a_batch_that_runs_again_does_no_work(lake: txlake.Lake) -> None:
    calls = []

    def counted(tx: Any, batch: Any) -> None:
        calls.append(tx.id)
        work(tx, batch)

    for number in (0, 0, 1, 0, 1):
        commit(lake, number, counted)
    assert len(calls) == 2
    assert rows(lake, "one") == rows(lake, "two") == 2


class Frame:
    """A batch of Spark's that notes how it is written; nothing else may be done with it."""

    def __init__(self) -> None:
        self.saved: list[str] = []

    @property
    def write(self) -> Frame:
        return self

    def format(self, name: str) -> Frame:
        self.saved.append(name)
        return self

    def mode(self, name: str) -> Frame:
        self.saved.append(name)
        return self

    def save(self) -> None:
        self.saved.append("saved")


def test_a_batch_that_runs_again_is_computed_for_its_state(lake: txlake.Lake) -> None:
    sink = TableSink(table="one", checkpoint="", output_mode="append")
    with lake.session() as own:
        commit(lake, 0)
        sink.commit(own, "another", 0, BATCH)
        for again, query in ((BatchWork(work=work, checkpoint=""), QUERY), (sink, "another")):
            frame: Any = Frame()
            again.commit(own, query, 0, frame)
            assert frame.saved == ["noop", "overwrite", "saved"]
    assert (rows(lake, "one"), rows(lake, "two")) == (2, 1)


def test_the_table_that_knows_a_batch_may_be_another_one_each_time(lake: txlake.Lake) -> None:
    def into(name: str) -> Work:
        return lambda tx, batch: tx.write(batch, name, "append")

    for number, name in enumerate(("one", "two", "one")):
        for _ in range(2):
            commit(lake, number, into(name))
    assert (rows(lake, "one"), rows(lake, "two")) == (2, 1)


def test_a_batch_that_was_noted_and_not_committed_is_done(lake: txlake.Lake) -> None:
    def killed() -> None:
        raise RuntimeError("killed here")

    def unlucky(tx: Any, batch: Any) -> None:
        work(tx, batch)
        tx._own_transaction().before_commit(killed)

    commit(lake, 0)
    with pytest.raises(RuntimeError, match="killed here"):
        commit(lake, 1, unlucky)
    assert rows(lake, "one") == 1
    commit(lake, 1)
    assert rows(lake, "one") == rows(lake, "two") == 2


def test_two_processes_cant_both_commit_a_batch(lake: txlake.Lake) -> None:
    attempts = []

    def slow(tx: Any, batch: Any) -> None:
        work(tx, batch)
        attempts.append(tx.id)
        if len(attempts) == 1:
            commit(lake, 0)

    with pytest.raises((InvalidRequest, Conflict), match=r"by another process|0000-1111"):
        commit(lake, 0, slow)
    assert rows(lake, "one") == rows(lake, "two") == 1


def test_two_processes_cant_both_commit_a_batch_into_different_tables(lake: txlake.Lake) -> None:
    def outer(tx: Any, batch: Any) -> None:
        tx.write(batch, "one", "append")
        commit(lake, 0, lambda tx, batch: tx.write(batch, "two", "append"))

    with pytest.raises(InvalidRequest, match="micro-batch 0 of query 0000-1111 is committed"):
        commit(lake, 0, outer)
    assert (rows(lake, "one"), rows(lake, "two")) == (0, 1)


def test_a_process_that_is_behind_doesnt_take_back_what_was_noted(lake: txlake.Lake) -> None:
    def outer(tx: Any, batch: Any) -> None:
        tx.write(batch, "one", "append")
        for number in (0, 1):
            commit(lake, number, lambda tx, batch: tx.write(batch, "two", "append"))

    with pytest.raises(InvalidRequest, match="micro-batch 0 of query 0000-1111 is committed"):
        commit(lake, 0, outer)
    commit(lake, 1)
    assert (rows(lake, "one"), rows(lake, "two")) == (0, 2)


def test_who_writes_nothing_may_be_asked_again(lake: txlake.Lake) -> None:
    calls = []
    for _ in range(2):
        commit(lake, 0, lambda tx, batch: calls.append(batch.num_rows))
    assert calls == [2, 2]
    commit(lake, 1)
    with pytest.raises(
        InvalidRequest, match=r"up to 1 of query .* micro-batch 3: the rows between"
    ):
        commit(lake, 3)
    assert rows(lake, "one") == 1


def test_a_checkpoint_is_that_of_one_sink(lake: txlake.Lake) -> None:
    commit(lake, 0)
    sink = TableSink(table="one", checkpoint="", output_mode="append")
    with lake.session() as own:
        sink.commit(own, "another", 0, BATCH)
        with pytest.raises(
            InvalidRequest, match=r"stream into one, which .* checkpoint of its own"
        ):
            TableSink(table="new", checkpoint="", output_mode="append").commit(
                own, "another", 1, BATCH
            )
    assert rows(lake, "one") == 2
    with pytest.raises(InvalidRequest, match="foreach_batch: the checkpoint is that of the stream"):
        Progress(lake._session.engine, "another", "foreach_batch").claim()


def test_a_table_that_misses_micro_batches_gets_no_later_one(lake: txlake.Lake) -> None:
    """A running query's table, put back between two of its micro-batches, say."""
    sink = TableSink(table="one", checkpoint="", output_mode="append")
    with lake.session() as own:
        sink.commit(own, QUERY, 0, BATCH)
        with pytest.raises(InvalidRequest, match=r"^one: the table has the micro-batches up to 0"):
            sink.commit(own, QUERY, 2, BATCH)
        sink.commit(own, QUERY, 1, BATCH)
    assert rows(lake, "one") == 2


def test_an_older_record_of_a_second_process_stops_nothing(
    lake: txlake.Lake, tmp_path: Path
) -> None:
    commit(lake, 0)
    file = tmp_path / "lake" / FOLDER / f"{QUERY}.json"
    older = file.read_bytes()
    commit(lake, 1)
    file.write_bytes(older)  # its request was on the way while micro-batch 1 was committed
    commit(lake, 2)
    assert rows(lake, "one") == 3
    file.write_bytes(older)
    with pytest.raises(InvalidRequest, match="the lake has the micro-batches up to 2"):
        commit(lake, 4)


def test_a_note_that_is_none_is_named(lake: txlake.Lake, tmp_path: Path) -> None:
    commit(lake, 0)
    (tmp_path / "lake" / FOLDER / f"{QUERY}.json").write_text("{}")
    with pytest.raises(CorruptTable, match="expected a stream's record"):
        commit(lake, 1)
