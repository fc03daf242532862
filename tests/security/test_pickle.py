"""Nothing that is read is ever run: no pickle, no eval, no code that a file brings along."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.security import hostile
from tests.security.reading import outcome
from txlake.datafiles.decode_task import DecodeTask
from txlake.datafiles.files import open_file

SOURCES = Path(str(txlake.__file__)).parent
FORBIDDEN_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
# Code of ours on its way to Spark's processes, never the other way.
ALLOWED = {
    "spark/package_loading.py": {"marshal"},
    "spark/shipping.py": {"cloudpickle", "compile", "marshal"},
}


def _used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (one.name.split(".")[0] for one in names)
            case ast.ImportFrom(module=module, names=names):
                yield from (module or "").split(".")
                yield from (one.name for one in names)
            case ast.Call(func=ast.Name(id=name)):
                yield name
            case ast.keyword(arg="allow_pickle"):
                yield "pickle"


def test_no_source_unpickles_or_evaluates() -> None:
    found = {
        str(path.relative_to(SOURCES)): used
        for path in SOURCES.rglob("*.py")
        if (
            used := set(_used(ast.parse(path.read_bytes()))) & (FORBIDDEN_MODULES | FORBIDDEN_CALLS)
        )
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from pyspark import cloudpickle", "eval('1')", "np.load(f, allow_pickle=1)"],
)
def test_the_search_finds_them(line: str) -> None:
    assert set(_used(ast.parse(line))) & (FORBIDDEN_MODULES | FORBIDDEN_CALLS)


class _Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.marker), "w")


def _hostile_schema(schema: pa.Schema, payload: bytes) -> pa.Schema:
    """Columns that claim to be of a type whose definition is in the file, pickled."""
    claims = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": payload,
    }
    fields = [item.with_metadata(claims) for item in schema]
    return pa.schema(fields, metadata={b"pandas": payload, b"pickle": payload})


@pytest.mark.no_interop("the files bring code along")
def test_a_file_that_brings_code_along_is_read_as_data(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    payload = pickle.dumps(_Payload(marker))
    folder = tmp_path / "t"
    rows = pa.table({"id": pa.array([0, 1, 2]), "v": ["a", "b", "c"]})
    folder.mkdir()
    data = rows.cast(_hostile_schema(rows.schema, payload))
    pq.write_table(data, folder / "own.parquet")
    size = (folder / "own.parquet").stat().st_size
    hostile.table(folder, hostile.add("own.parquet", size))
    txlake.Log(str(folder))  # a checkpoint of it, with the same claims
    assert outcome(folder) == "read"
    [checkpoint] = (folder / "_delta_log").glob("*.checkpoint.parquet")
    table = pq.read_table(checkpoint)
    pq.write_table(table.cast(_hostile_schema(table.schema, payload)), checkpoint)
    (folder / "_delta_log" / f"{1:020}.json").write_text("{}")
    assert outcome(folder) == "read"
    with open_file(f"file://{folder}/own.parquet", {}) as source:
        assert pq.ParquetFile(source).read().num_rows == 3
    schema = pa.schema(
        [("id", pa.int64()), ("v", pa.string()), ("f", pa.int64()), ("r", pa.int64())]
    )
    task = DecodeTask(schema=schema.serialize().to_pybytes(), by_id=False)
    urls = pa.RecordBatch.from_pydict({"ordinal": [0], "url": [f"file://{folder}/own.parquet"]})
    assert sum(batch.num_rows for batch in task(iter([urls]), 0, 0)) == 3
    assert not marker.exists()
