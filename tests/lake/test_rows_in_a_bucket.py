"""Statements on few rows of tables in a bucket need no Spark, and few requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.storage.conftest import s3_options  # noqa: F401
from tests.storage.proxy import Answer, Proxy, Request, proxying
from txlake.cli.worker import LakeWorker
from txlake.datafiles.files import Uploads
from txlake.errors import CorruptTable
from txlake.lake.lake import Lake, open_session
from txlake.lake.log import Log
from txlake.local import remote_files
from txlake.local.merge import merge_on_driver
from txlake.local.merge_keys import LocalSource, key_predicate
from txlake.protocol.statistics import FileStatistics
from txlake.protocol.types import from_arrow_schema
from txlake.spark.deletions import delete_positions
from txlake.spark.plane import SparkTable
from txlake.sql import parse
from txlake.sql.statements import Merge
from txlake.storage import open_store

pytestmark = pytest.mark.broad(keep=2)

TIMEOUT_S = 30


class Started(Exception):
    """Spark was asked for."""


def no_spark() -> SparkSession:
    raise Started


class Recorder(Proxy):
    """Notes the requests for data files and deletion vectors; `rendezvous` delays their answers."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.noted: list[Request] = []
        self.rendezvous: Callable[[Request], object] = lambda _: None

    def answer(self, request: Request) -> Answer:
        if ".parquet" in request.target or "deletion_vector" in request.target:
            self.noted.append(request)
            self.rendezvous(request)
        return super().answer(request)

    @property
    def methods(self) -> list[str]:
        return sorted(request.method for request in self.noted)

    def spans(self) -> list[tuple[str, int, int]]:
        """The bytes asked for, by file."""
        found = []
        for request in self.noted:
            if request.method == "GET":
                headers = {name.lower(): value for name, value in request.headers.items()}
                first, _, last = headers["range"].removeprefix("bytes=").partition("-")
                found.append((request.target, int(first), int(last)))
        return sorted(found)


@dataclass
class Place:
    """A lake, for statements that need no Spark."""

    url: str
    options: dict[str, str]
    recorder: Recorder | None = None
    lake: Lake = field(init=False)

    def __post_init__(self) -> None:
        session = open_session(self.url, make_spark=no_spark, storage_options=self.options)
        self.lake = Lake(session)
        self._worker = LakeWorker(self.lake, session)

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement; return its rows. Forgets the requests before."""
        if self.recorder is not None:
            self.recorder.noted.clear()
        return [tuple(row) for row in self._worker.run(text, None).rows]

    def files(self, table: str) -> list[tuple[object, ...]]:
        """What the log says of each live file, but for its name."""
        log = Log(f"{self.url}/{table}", storage_options=self.options)
        found = (
            (
                add.size,
                FileStatistics.from_json(add.stats).num_records,
                None if add.deletion_vector is None else add.deletion_vector.cardinality,
                add.base_row_id,
                add.default_row_commit_version,
                tuple(add.partition_values.values()),
            )
            for add in log._log.latest().files.adds()
        )
        return sorted(found, key=repr)


@pytest.fixture
def bucket(
    s3_options: dict[str, str],  # noqa: F811
    request: pytest.FixtureRequest,
) -> Iterator[Place]:
    recorder = Recorder(s3_options["AWS_ENDPOINT_URL"])
    with proxying(recorder):
        options = {**s3_options, "AWS_ENDPOINT_URL": recorder.address}
        place = Place(f"s3://lake/{request.node.name.strip(']').replace('[', '-')}", options)
        with place.lake:
            place.recorder = recorder
            yield place


KINDS = pa.table(
    {
        "b": pa.array([1, None, -128], pa.int8()),
        "i": pa.array([3, None, -(2**31)], pa.int32()),
        "l": pa.array([4, 5, -(2**63)], pa.int64()),
        "f": pa.array([0.1, float("nan"), -0.0], pa.float32()),
        "d": pa.array([float("nan"), None, -0.0], pa.float64()),
        "o": pa.array([True, None, False]),
        "t": pa.array(['ä "1"', None, ""]),
        "x": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "m": pa.array([None, None, None], pa.decimal128(20, 3)),
    }
)
SCRIPT = """
UPDATE kinds SET i = i + 1, t = t || '!' WHERE l = 4;
UPDATE kinds SET d = 2.5D WHERE l = 5;
INSERT INTO kinds (l) VALUES (9), (10);
UPDATE kinds SET o = true WHERE l = 9;
DELETE FROM kinds WHERE l = 10;
CREATE TABLE parts (id INT, `a b` STRING, p STRING) PARTITIONED BY (p)
    TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = true,
        'delta.enableDeletionVectors' = true);
INSERT INTO parts VALUES (1, 'x', 'u'), (2, NULL, NULL), (3, 'z', 'v'), (4, 'y', 'v');
INSERT INTO parts VALUES (5, 'w', 'u');
DELETE FROM parts WHERE id = 3;
UPDATE parts SET `a b` = 'new' WHERE id IN (1, 2, 4);
UPDATE parts SET p = 'w' WHERE id = 5;
ALTER TABLE parts RENAME COLUMN id TO number;
ALTER TABLE parts ADD COLUMN more INT;
UPDATE parts SET more = number WHERE number = 2;
DELETE FROM parts WHERE number = 1 AND p = 'u'
"""
QUERIES = (
    "SELECT * FROM kinds",
    "SELECT * FROM kinds WHERE l = 4",
    "SELECT t, l FROM kinds WHERE t = ''",
    "SELECT l FROM kinds WHERE d IS NULL LIMIT 5",
    "SELECT * FROM parts",
    "SELECT `a b`, p FROM parts WHERE number = 5",
    "SELECT number FROM parts WHERE number IN (2, 3, 4)",
    "SELECT * FROM parts WHERE number = 7",
)


def test_statements_do_what_they_do_on_this_machine(bucket: Place, tmp_path: Path) -> None:
    local = Place(str(tmp_path / "wh"), {})
    with local.lake:
        answers: list[list[Any]] = []
        for place in (local, bucket):
            place.lake.write(KINDS, "kinds")
            answers.append([place.run(text) for text in SCRIPT.split(";")])
            answers.append([sorted(repr(row) for row in place.run(text)) for text in QUERIES])
        assert answers[2:] == answers[:2]
        for table in ("kinds", "parts"):
            assert bucket.files(table) == local.files(table)
    assert not bucket.lake._session.engine.plane.is_started


def test_requests_of_statements_on_one_row(bucket: Place) -> None:
    recorder = bucket.recorder
    assert recorder is not None
    bucket.lake.write(pa.table({"id": range(1000), "v": range(1000)}), "t")
    assert bucket.run("SELECT * FROM t WHERE id = 5") == [(5, 5)]
    assert recorder.methods == ["GET"]
    bucket.run("DELETE FROM t WHERE id = 6")
    assert recorder.methods == ["GET", "PUT"]
    bucket.run("UPDATE t SET v = 0 WHERE id = 7")
    assert recorder.methods == ["GET", "GET", "PUT", "PUT"]
    assert bucket.run("SELECT * FROM t WHERE id IN (6, 7, 8)") in (
        [(8, 8), (7, 0)],
        [(7, 0), (8, 8)],
    )
    assert recorder.methods == ["GET"] * 3  # two files, one of which has a vector
    bucket.run("DELETE FROM t WHERE id = 8")
    assert recorder.methods == ["GET", "GET", "PUT"]


def test_requests_wait_side_by_side(bucket: Place) -> None:
    """Each meeting passes only while so many requests of the kind are on their way."""
    recorder = bucket.recorder
    assert recorder is not None
    bucket.lake.write(pa.table({"id": range(1000), "v": range(1000)}), "t")
    bucket.lake.write(pa.table({"id": range(1000), "v": range(1000)}), "t", "append")
    bucket.run("DELETE FROM t WHERE id = 6")
    meetings = {
        "GET": threading.Barrier(4, timeout=TIMEOUT_S),  # two files, and the vectors of both
        "PUT": threading.Barrier(2, timeout=TIMEOUT_S),
    }
    recorder.rendezvous = lambda request: meetings[request.method].wait(TIMEOUT_S)
    bucket.run("UPDATE t SET v = 0 WHERE id = 5")
    recorder.rendezvous = lambda _: None
    assert recorder.methods.count("PUT") == 2
    assert bucket.run("SELECT v FROM t WHERE id = 5") == [(0,), (0,)]


def test_new_files_of_partitions_are_written_side_by_side(bucket: Place) -> None:
    recorder = bucket.recorder
    assert recorder is not None
    bucket.run("CREATE TABLE t (id INT, p INT) PARTITIONED BY (p)")
    meeting = threading.Barrier(3, timeout=TIMEOUT_S)
    recorder.rendezvous = lambda _: meeting.wait(TIMEOUT_S)
    bucket.run("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    assert recorder.methods == ["PUT"] * 3


def test_a_row_of_a_large_file_takes_two_reads(bucket: Place) -> None:
    recorder = bucket.recorder
    assert recorder is not None
    count = 400_000
    numbers = pa.array(range(count), pa.int64())
    values = pa.array([(7919 * number) % 1_000_003 for number in range(count)], pa.int64())
    bucket.lake.write(pa.table({"id": numbers, "v": values}), "t")
    assert bucket.run("SELECT * FROM t WHERE id = 77") == [(77, 7919 * 77 % 1_000_003)]
    assert len(recorder.noted) == 2  # the footer, then both columns
    bucket.run("UPDATE t SET v = 1 WHERE id = 78")
    assert recorder.methods == ["GET", "GET", "PUT", "PUT"]
    _assert_apart(recorder.spans())
    bucket.run("DELETE FROM t WHERE id = 79")
    spans = recorder.spans()
    _assert_apart(spans)
    assert recorder.methods == ["GET", "GET", "GET", "PUT"]  # the vector too
    fetched = sum(last - first + 1 for _, first, last in spans)
    assert fetched < 3_600_000  # without the column v


def test_a_merge_of_few_rows(bucket: Place) -> None:
    recorder = bucket.recorder
    assert recorder is not None
    bucket.lake.write(pa.table({"id": range(1000), "v": range(1000)}), "t")
    engine = bucket.lake._session.engine
    log = Log(f"{bucket.url}/t", storage_options=bucket.options)._log
    work = engine.plane.table(log.latest(), log.store, system=engine.system, name="t", allowed=list)
    assert isinstance(work, SparkTable)
    [statement] = parse(
        "MERGE INTO t USING s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert isinstance(statement, Merge)
    rows = pa.table({"id": [5, 2000], "v": [50, 60]})
    source = LocalSource(rows, from_arrow_schema(rows.schema), "s")
    possible = key_predicate(work, statement, source)
    files = work.snapshot.select(possible)
    recorder.noted.clear()
    meeting = threading.Barrier(2, timeout=TIMEOUT_S)
    recorder.rendezvous = lambda request: request.method == "PUT" and meeting.wait(TIMEOUT_S)
    with Uploads() as uploads:
        written = merge_on_driver(work, statement, source, files, possible, uploads)
        deletions = delete_positions(work, files, written.replaced)
    assert recorder.methods == ["GET", "PUT", "PUT"]  # both are written side by side
    [new] = written.adds
    assert FileStatistics.from_json(new.stats).num_records == 2
    assert deletions.vectors_added == 1


def _assert_apart(spans: list[tuple[str, int, int]]) -> None:
    """No byte is asked for twice."""
    assert all(one[0] != other[0] or one[2] < other[1] for one, other in pairwise(spans))


def test_much_to_fetch_is_left_to_spark(bucket: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = bucket.recorder
    assert recorder is not None
    bucket.lake.write(pa.table({"id": range(1000)}), "t")
    monkeypatch.setattr(remote_files, "FETCHED_BYTES_MAX", 100)
    for text in (
        "SELECT * FROM t WHERE id = 5",
        "SELECT * FROM t LIMIT 1",
        "UPDATE t SET id = 0 WHERE id = 5",
        "DELETE FROM t WHERE id = 5",
    ):
        with pytest.raises(Started):
            bucket.run(text)
        assert recorder.noted == [], text


def test_spark_says_what_is_wrong_with_a_missing_file(bucket: Place) -> None:
    bucket.lake.write(pa.table({"id": range(10)}), "t")
    bucket.run("DELETE FROM t WHERE id = 3")
    store = open_store(f"{bucket.url}/t", bucket.options)
    [file] = [each.path for each in store.list("") if each.path.endswith(".parquet")]
    data = store.get(file)
    store.delete([file])
    for text in ("SELECT * FROM t WHERE id = 5", "DELETE FROM t WHERE id = 5"):
        with pytest.raises(Started):
            bucket.run(text)
    store.put(file, data)
    store.delete([each.path for each in store.list("") if each.path.endswith(".bin")])
    for text in ("SELECT * FROM t WHERE id = 5", "DELETE FROM t WHERE id = 5"):
        with pytest.raises(CorruptTable, match=r"deletion vector file .* is in the log but not in"):
            bucket.run(text)
