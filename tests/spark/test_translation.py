"""Errors of Spark, of the stores and of the tasks become those that say what to do next."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    PySparkException,
    PythonException,
    SparkRuntimeException,
)

from tests.spark.tables import table
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, Unavailable
from txlake.spark.translation import spark_errors, translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSING = (
    "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: "
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "
    "file:///data/t/part-1.parquet. File does not exist. It is possible ...\n\tat org.apache"
)
DAMAGED = MISSING.replace("FILE_NOT_EXIST", "NO_HINT").replace("File does not exist. ", "")
TRACEBACK = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    '  File "x.py", line 1, in run\n{}\n SQLSTATE: 38000'
)

CASES: list[tuple[type[PySparkException], str, type[TxlakeError], str]] = [
    (
        AnalysisException,
        "[PATH_NOT_FOUND] Path does not exist: file:///tmp/txlake-scan-a1b2/c3. SQLSTATE: 42K03",
        InvalidRequest,
        "scratch_url",
    ),
    (
        AnalysisException,
        "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 1 pos 0;\n'Filter ('x > 1)\n+- Range",
        InvalidRequest,
        "t: Spark refused the statement: [UNRESOLVED_COLUMN] no `x`.",
    ),
    (
        ArithmeticException,
        (
            '[DIVIDE_BY_ZERO] Division by zero. If necessary set "spark.sql.ansi.enabled" to '
            '"false" to bypass this error. SQLSTATE: 22012\n== SQL (line 1, position 1) ==\n1/0'
        ),
        InvalidRequest,
        "[DIVIDE_BY_ZERO] Division by zero.",
    ),
    (
        SparkRuntimeException,
        "[USER_RAISED_EXCEPTION] column 'i' is too small SQLSTATE: P0001",
        InvalidRequest,
        "t: column 'i' is too small; nothing was written",
    ),
    (
        PySparkException,
        MISSING,
        CorruptTable,
        "t: data file file:///data/t/part-1.parquet is in the log but not in the store",
    ),
    (PySparkException, DAMAGED, CorruptTable, "data file file:///data/t/part-1.parquet can't be"),
    (
        PythonException,
        TRACEBACK.format("OSError: [Errno 28] No space left on device: '/x'"),
        InvalidRequest,
        "t: the table's files can't be written: [Errno 28] No space left",
    ),
    (
        PythonException,
        TRACEBACK.format("txlake.errors.CorruptTable: v.bin: its checksum does not fit"),
        CorruptTable,
        "t: v.bin: its checksum does not fit",
    ),
    (
        PythonException,
        TRACEBACK.format("ZeroDivisionError: division by zero"),
        InvalidRequest,
        "Python code in a Spark task failed: ZeroDivisionError: division by zero",
    ),
    (PySparkException, "Job aborted due to stage failure", Unavailable, "could not run"),
]


@pytest.mark.parametrize(("kind", "text", "wanted", "message"), CASES)
def test_errors_of_spark(
    kind: type[PySparkException], text: str, wanted: type[TxlakeError], message: str
) -> None:
    class Raised(kind):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            Exception.__init__(self, text)

        def __str__(self) -> str:
            return text

    found = translated(Raised(), "t")
    assert type(found) is wanted
    assert message in str(found)
    for noise in ("SQLSTATE", "spark.sql.ansi", "\tat ", "Traceback"):
        assert noise not in str(found)


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (errno.ENOSPC, InvalidRequest),
        (errno.EROFS, InvalidRequest),
        (errno.EACCES, InvalidRequest),
        (errno.ENOENT, CorruptTable),
        (errno.EIO, Unavailable),
    ],
)
def test_errors_of_files(number: int, wanted: type[TxlakeError]) -> None:
    with pytest.raises(wanted, match=r"^t: ") as caught, spark_errors("t"):
        raise OSError(number, "text", "/a/file")
    assert isinstance(caught.value.__cause__, OSError)


def test_ours_and_others_pass() -> None:
    with pytest.raises(InvalidRequest, match=r"^as it was$"), spark_errors("t"):
        raise InvalidRequest("as it was")
    with pytest.raises(KeyError), spark_errors("t"):
        raise KeyError("a bug")


def test_a_missing_data_file_is_named_by_changes_too(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT")
    t.run("INSERT INTO t VALUES (1)")
    (file,) = t.data_files()
    (t.folder / file).rename(t.folder / "hidden")
    for sql in ("UPDATE t SET id = 2", "DELETE FROM t WHERE id + 0 = 1"):
        with pytest.raises(CorruptTable, match=f"t: data file .*{file} is in the log but not"):
            t.run(sql)
    (t.folder / "hidden").write_bytes(b"not Parquet at all")
    (t.folder / "hidden").rename(t.folder / file)
    with pytest.raises(CorruptTable, match=f"t: data file .*{file} can't be read"):
        t.run("UPDATE t SET id = 2")
    t.folder.joinpath(file).unlink()
    t.overwrite(spark.sql("SELECT 3 id"))
    assert t.rows() == [(3,)]


def test_a_users_failing_function_is_named(tmp_path: Path, spark: SparkSession) -> None:
    from collections.abc import Iterator

    import pyarrow as pa

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise LookupError("no such thing")
            yield batch

    t = table(tmp_path / "t", spark, "id LONG")
    with pytest.raises(InvalidRequest, match="LookupError: no such thing"):
        t.append(spark.range(3).mapInArrow(fails, "id long"))
    assert t.data_files() == set()
