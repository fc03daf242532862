"""What runs in Spark's tasks: their code comes along, and retries double no row."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest

import txlake
from txlake.datafiles import write_task
from txlake.datafiles.write_task import Layout, WriteTask
from txlake.spark import shipping
from txlake.spark.shipping import SHIPPED, code_archive, pickled

SOURCES = Path(str(txlake.__file__)).parent
SCHEMA = pa.schema([("v", pa.int32())])


ALONE = """
import pickle, sys
sys.path.insert(1, sys.argv[1])
absent = "txlake", "msgspec", "obstore", "sqlalchemy", "sqlglot"
sys.modules.update(dict.fromkeys(absent))  # no import of them works
task, live, decode = pickle.load(open(sys.argv[2], "rb"))
import pyarrow as pa
batch = pa.RecordBatch.from_pydict({"v": pa.array([1, 2], pa.int32())})
rows = [row for out in task(iter([batch]), 0, 0) for row in out.to_pylist()]
print([row["kind"] for row in rows])
print([x.to_pylist() for x in live(iter([(pa.array([0, 0, 1, 2]), pa.array([1, 2, 1, 3]))]), 0, 0)])
files = pa.RecordBatch.from_pydict({"o": [4], "u": [task.root + "/" + rows[0]["text"]]})
print([b.to_pylist() for b in decode(iter([files]), 0, 0)])
"""


def test_tasks_need_no_txlake_where_they_run(tmp_path: Path) -> None:
    from pyroaring import BitMap64

    from txlake.datafiles.decode_task import DecodeTask
    from txlake.datafiles.live_rows import LiveRowFilter
    from txlake.datafiles.stored_vectors import StoredVector
    from txlake.protocol.roaring import vector_file

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
    live = LiveRowFilter({0: StoredVector.packed(BitMap64([1])), 2: stored})
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


def test_one_name_of_an_archive_has_one_content() -> None:
    """A Spark Connect server has one folder for the files of all clients, by their names."""
    files = [Path(str(shipping.__file__))]
    archives = [shipping._archive(files, compiled=compiled) for compiled in (False, True, False)]
    (package, plain), (other_package, compiled), (_, again) = archives
    assert package == other_package
    assert plain.name == again.name != compiled.name


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


@pytest.mark.broad
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
