"""What runs in Spark's tasks: files are whole or gone, reports are exact, retries double no row."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlake
from txlake.datafiles import write_task
from txlake.datafiles.packed_positions import pack_positions, unpack_positions
from txlake.datafiles.vectors import from_report
from txlake.datafiles.write_task import Layout, WriteTask, run
from txlake.spark.shipping import SHIPPED, code_archive, pickled

SOURCES = Path(str(txlake.__file__)).parent
SCHEMA = pa.schema([("v", pa.int32())])


def _task(folder: Path, layout: Layout, **options: Any) -> WriteTask:
    return WriteTask(
        schema=SCHEMA.serialize().to_pybytes(),
        layout=layout,
        root=folder.as_uri(),
        job_id="job",
        folder_of=lambda values: "/".join(f"p={value}" for value in values),
        **options,
    )


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def _run(task: WriteTask, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in run(task, iter(batches), "part") for row in batch.to_pylist()]


def _files(folder: Path) -> dict[str, list[int]]:
    found = sorted(folder.rglob("*.parquet"))
    return {
        str(path.relative_to(folder)): pq.ParquetFile(path).read()["v"].to_pylist()
        for path in found
    }


def test_replaced_positions_are_reported_in_order_and_once() -> None:
    replaced = write_task.Replaced()
    for files, rows in (([4, 4], [7, 9]), ([4, 5, None], [7, 1, None]), ([4, 4], [3, 8])):
        replaced.collect(pa.array(files, pa.int64()), pa.array(rows, pa.int64()))
    found: dict[Any, Any] = {one["key"]: one for one in replaced.report()}
    assert {key: one["count"] for key, one in found.items()} == {4: 5, 5: 1}
    assert [unpack_positions(found[key]["data"]).tolist() for key in (4, 5)] == [[3, 7, 8, 9], [1]]


V = pa.int32()


def test_rows_keep_their_order_over_batches(tmp_path: Path) -> None:
    batches = [_batch(v=pa.array([i, i + 1], V)) for i in (3, 1, 2)]
    (file, action) = _run(_task(tmp_path, Layout(data=1)), *batches)
    assert _files(tmp_path) == {file["text"]: [3, 4, 1, 2, 2, 3]}
    assert (file["count"], file["key"]) == (6, (tmp_path / file["text"]).stat().st_size)
    assert (action["kind"], action["key"], action["count"]) == ("action", write_task.INSERT, 6)


def test_a_new_file_for_each_partition_and_limit(tmp_path: Path) -> None:
    task = _task(tmp_path, Layout(data=1, partition=(1,)), rows_max=2)
    rows = _batch(v=pa.array([1, 2, 3, 4, 5], V), p=["a", "a", "a", "b", None])
    files = [row for row in _run(task, rows) if row["kind"] == "file"]
    assert [(f["values"], f["count"]) for f in files] == [
        (["a"], 2), (["a"], 1), (["b"], 1), ([None], 1)
    ]  # fmt: skip
    assert sorted(_files(tmp_path).values()) == [[1, 2], [3], [4], [5]]


def test_only_rows_with_an_image_are_written(tmp_path: Path) -> None:
    layout = Layout(data=1, action=1, file=2, row=3, partition=(4,))
    task = _task(tmp_path, layout)
    rows = _batch(
        v=pa.array([1, 2, 3], V),
        action=pa.array([write_task.UPDATE, write_task.DELETE, write_task.INSERT], pa.int32()),
        file=pa.array([0, 5, None], pa.int64()),
        row=pa.array([10, 20, None], pa.int64()),
        p=["a", "a", "a"],
    )
    only_deleted = rows.slice(1, 1)
    reports = _run(task, rows, only_deleted)
    assert list(_files(tmp_path).values()) == [[1, 3]]
    replaced = {r["key"]: (list(from_report(r["data"])), r["count"]) for r in reports
                if r["kind"] == "rows"}  # fmt: skip
    assert replaced == {0: ([10], 1), 5: ([20], 2)}
    counts = {row["key"]: row["count"] for row in reports if row["kind"] == "action"}
    assert counts == {write_task.UPDATE: 1, write_task.DELETE: 2, write_task.INSERT: 1}


def test_a_violation_stops_the_task_and_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout(data=1, violation=1, violation_row=2)
    task = _task(tmp_path, layout)
    good = _batch(
        v=pa.array([1], V), why=pa.array([None], pa.string()), row=pa.array([None], pa.string())
    )
    bad = _batch(v=pa.array([2, 3], V), why=[None, "rule"], row=[None, '{"v":3}'])
    (report,) = _run(task, good, bad, good)
    assert (report["kind"], report["text"], report["values"]) == ("violation", "rule", ['{"v":3}'])
    assert _files(tmp_path) == {}


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_task_leaves_no_file(tmp_path: Path, failing: int) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            if number == failing:
                raise RuntimeError("killed")
            yield _batch(v=pa.array([number], V), p=[str(number)])

    task = _task(tmp_path, Layout(data=1, partition=(1,)))
    with pytest.raises(RuntimeError, match="killed"):
        list(run(task, batches(), "part"))
    assert _files(tmp_path) == {}


def test_an_empty_task_reports_nothing(tmp_path: Path) -> None:
    assert _run(_task(tmp_path, Layout(data=1)), _batch(v=pa.array([], V))) == []
    assert list(tmp_path.iterdir()) == []


@given(st.sets(st.integers(0, 2_000)) | st.sets(st.integers(0, 2**40), max_size=20))
def test_positions_survive_the_report(positions: set[int]) -> None:
    ordered = np.array(sorted(positions), dtype=np.int64)
    data = pack_positions(ordered)
    assert unpack_positions(data).tolist() == ordered.tolist()
    assert list(from_report(data)) == ordered.tolist()
    assert len(data) <= 1 + 8 * max(1, len(positions))


ALONE = """
import pickle, sys
sys.path.insert(1, sys.argv[1])
absent = "txlake", "msgspec", "obstore", "sqlalchemy", "sqlglot"
sys.modules.update(dict.fromkeys(absent))  # no import of them works
task, live, decode = pickle.load(open(sys.argv[2], "rb"))
import pyarrow as pa
batch = pa.RecordBatch.from_pydict({"v": pa.array([1, 2], pa.int32())})
rows = [row for out in task(iter([batch])) for row in out.to_pylist()]
print([row["kind"] for row in rows])
print([x.to_pylist() for x in live(iter([(pa.array([0, 0, 1, 2]), pa.array([1, 2, 1, 3]))]))])
files = pa.RecordBatch.from_pydict({"o": [4], "u": [task.root + "/" + rows[0]["text"]]})
print([b.to_pylist() for b in decode(iter([files]))])
"""


def test_tasks_need_no_txlake_where_they_run(tmp_path: Path) -> None:
    from pyroaring import BitMap64

    from txlake.datafiles.decode_task import DecodeTask
    from txlake.datafiles.live_rows import LiveRows
    from txlake.datafiles.stored_vectors import StoredVector
    from txlake.protocol.roaring import vector_file
    from txlake.spark.log_columns import held_vector

    task = WriteTask(
        schema=SCHEMA.serialize().to_pybytes(),
        layout=Layout(data=1),
        root=tmp_path.as_uri(),
        job_id="job",
        folder_of=partial(write_task.folder_of, ()),
    )
    wanted = pa.schema(
        [("v", pa.int64()), ("w", pa.string()), ("f", pa.int64()), ("r", pa.int64())]
    )
    decode = DecodeTask(schema=wanted.serialize().to_pybytes(), by_id=False)
    data, [(offset, size)] = vector_file([BitMap64([3])])
    (tmp_path / "vector.bin").write_bytes(data)
    stored = StoredVector((tmp_path / "vector.bin").as_uri(), offset, size, 1)
    live = LiveRows({0: held_vector(BitMap64([1])), 2: stored})
    package, archive = code_archive()
    tasks = tmp_path / "tasks"
    tasks.write_bytes(pickled((task, live, decode), package))
    program = [sys.executable, "-c", ALONE, str(archive), str(tasks)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "['file', 'action']",
        "[[False, True, True, False]]",
        "[[{'v': 1, 'w': None, 'f': 4, 'r': 0}, {'v': 2, 'w': None, 'f': 4, 'r': 1}]]",
    ]


def test_what_tasks_import_is_in_the_archive() -> None:
    """Whatever travels must find what it imports on a cluster that has no txlake, or another."""
    package, archive = code_archive()
    assert code_archive() == (package, archive)
    with ZipFile(archive) as made:
        sources = {name: made.read(name).decode() for name in made.namelist()}
    assert {name.split("/")[1].removesuffix(".py") for name in sources} == {*SHIPPED, "__init__"}
    tasks = ("compact_task", "decode_task", "live_rows", "write_task")
    wanted = [f"{package}.datafiles.{name}" for name in tasks]
    seen: set[str] = set()
    while wanted:
        module = wanted.pop()
        places = [f"{module.replace('.', '/')}{end}" for end in (".py", "/__init__.py")]
        (found,) = (place for place in places if place in sources)
        if found not in seen:
            seen.add(found)
            wanted += _imported(sources[found], package, places)
    assert f"{package}/storage/objects.py" in seen


def _imported(source: str, package: str, places: list[str]) -> Iterator[str]:
    """The modules of ours that one imports, wherever it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("txlake"):
            module = str(node.module)
            assert module.partition(".")[0] == package, f"{places} import {module}"
            if module != package:
                yield module
            if module.count(".") < 2:
                folder = SOURCES / module.removeprefix(package).strip(".").replace(".", "/")
                names = (alias.name for alias in node.names)
                yield from (
                    f"{module}.{name}" for name in names if (folder / f"{name}.py").exists()
                )


RETRIED = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "OFF").getOrCreate())
from pathlib import Path
from tests.spark.tables import table
folder = Path(sys.argv[3])

def first_attempt_dies(batches):
    import os
    from pyspark import TaskContext
    for batch in batches:
        yield batch
    if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
        os.kill(os.getpid(), 9)

def first_attempt_fails(batches):
    from pyspark import TaskContext
    for batch in batches:
        yield batch
    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("the first attempt fails at its end")

t = table(folder / "t", spark, "id LONG, p LONG", partitioned_by="p")
rows = spark.range(0, 1000, 1, 4).selectExpr("id", "id % 3 p")
t.append(rows.mapInArrow(first_attempt_fails, "id long, p long"))
print(len(t.rows()), len(set(t.rows())))
killed = rows.selectExpr("id + 1000 id", "p").mapInArrow(first_attempt_dies, "id long, p long")
t.append(killed)
print(len(t.rows()), len(set(t.rows())))
orphans = t.data_files() - {add.path for add in t.adds()}
print(len(t.adds()), all(path.startswith("p=") for path in orphans))
u = table(folder / "u", spark, "id LONG, p LONG")  # Spark's own writer takes what has no partitions
u.append(rows.mapInArrow(first_attempt_fails, "id long, p long"))
u.append(killed)
print(len(u.rows()), len(set(u.rows())), u.data_files() == {add.path for add in u.adds()})
spark.stop()
"""


def test_attempts_that_fail_or_die_double_no_row(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", RETRIED, str(root), str(root / "src"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second, third, fourth = done.stdout.splitlines()[-4:]
    assert (first, second) == ("1000 1000", "2000 2000")
    assert third.endswith("True")
    assert fourth == "2000 2000 True"
