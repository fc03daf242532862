"""Errors of Spark, of the stores and of the tasks become those that say what to do next."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    PySparkException,
    PySparkTypeError,
    PythonException,
    SparkRuntimeException,
    SparkUpgradeException,
)

from tests.spark.tables import table
from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, Unavailable
from txlake.spark.spark_errors import spark_errors, translated

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
        TRACEBACK.format("txlake_0a1b.errors.CorruptTable: v.bin: its checksum does not fit"),
        CorruptTable,
        "t: v.bin: its checksum does not fit",
    ),
    (
        PythonException,
        TRACEBACK.format("txlake_0a1b.errors.InvalidRequest: can't write s3://b/f: no access"),
        InvalidRequest,
        "t: can't write s3://b/f: no access",
    ),
    (
        PythonException,
        TRACEBACK.format("txlake_0a1b.errors.Unavailable: can't read s3://b/f: timeout"),
        Unavailable,
        "t: can't read s3://b/f: timeout",
    ),
    (
        PythonException,
        TRACEBACK.format("ZeroDivisionError: division by zero"),
        InvalidRequest,
        "Python code in a Spark task failed: ZeroDivisionError: division by zero",
    ),
    (PySparkException, "Job aborted due to stage failure", Unavailable, "could not run"),
    (
        SparkUpgradeException,
        "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.X] Fail to recognize 'YYYY'. SQLSTATE: 42K0B",
        InvalidRequest,
        "refused the statement: [INCONSISTENT_BEHAVIOR_CROSS_VERSION.X] Fail to recognize 'YYYY'.",
    ),
    (PySparkException, "[NO_ACTIVE_SESSION] No active Spark session found.", Unavailable, "could"),
    (PySparkTypeError, "[NOT_STR] Argument `x` should be a str.", InvalidRequest, "[NOT_STR] Arg"),
    (PySparkException, "", Unavailable, "could not run the statement: Raised"),
    (AnalysisException, "", InvalidRequest, "refused the statement: Raised"),
]

FAILED = "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: "
AWAITED = f"{FAILED}Exception thrown in awaitResult: \n\tat org.apache\nCaused by: "
ABORTED = f"{FAILED}Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most "
LOST = f"{ABORTED}recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): "
WRAPPED: list[tuple[str, type[TxlakeError], str]] = [
    (
        f"{FAILED}[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row. SQLSTATE: 21000\n\tat x",
        InvalidRequest,
        "t: Spark refused the statement: [SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row.",
    ),
    (
        f"{AWAITED}org.apache.spark.SparkNumberFormatException: [CAST] 'x'. SQLSTATE: 22018",
        InvalidRequest,
        "t: Spark refused the statement: [CAST] 'x'.",
    ),
    (
        f"{AWAITED}org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] no SQLSTATE: P1",
        InvalidRequest,
        "t: no; nothing was written",
    ),
    (
        (
            f"{AWAITED}org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An "
            "exception was thrown from the Python worker: Traceback\nLookupError: mine\n"
        ),
        InvalidRequest,
        "t: Python code in a Spark task failed: LookupError: mine",
    ),
    (
        AWAITED + MISSING.partition("\n: ")[2],
        CorruptTable,
        "t: data file file:///data/t/part-1.parquet is in the log but not in the store",
    ),
    (
        (
            f"{FAILED}[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\n\tat x\nCaused by: "
            "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] by 0. SQLSTATE: 22012"
        ),
        InvalidRequest,
        "[DIVIDE_BY_ZERO] by 0.",
    ),
    (
        (
            f"{FAILED}[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\n\tat x\nCaused by: "
            "java.net.SocketException: reset"
        ),
        Unavailable,
        "[TASK_WRITE_FAILED] Task failed.",
    ),
    (
        (
            f"{FAILED}[INTERNAL_ERROR] a bug. SQLSTATE: XX000\n\tat x\nCaused by: "
            "java.lang.NullPointerException\n\tat x"
        ),
        InvalidRequest,
        "[INTERNAL_ERROR] a bug.",
    ),
    (f"{FAILED}[INTERNAL_ERROR_NETWORK] reset. SQLSTATE: XX000", Unavailable, "could not run"),
    (f"{FAILED}[SPARK_JOB_CANCELLED] stopped. SQLSTATE: XXKDA", Unavailable, "could not run"),
    (f"{FAILED}[UNABLE_TO_ACQUIRE_MEMORY] 8 bytes. SQLSTATE: 53200", Unavailable, "8 bytes"),
    (f"{FAILED}[INVALID_HANDLE.SESSION_CLOSED] gone. SQLSTATE: HY000", Unavailable, "gone"),
    (f"{LOST}ExecutorLostFailure (executor 1 exited)", Unavailable, "ExecutorLostFailure"),
    (f"{LOST}TaskKilled (another attempt succeeded)", Unavailable, "TaskKilled"),
    (f"{LOST}java.lang.OutOfMemoryError: Java heap space\n\tat x", Unavailable, "Java heap space"),
    (f"{LOST}java.net.ConnectException: refused", Unavailable, "ConnectException: refused"),
    (
        f'{LOST}java.lang.NumberFormatException: For input string: "x"\n\tat x',
        InvalidRequest,
        'NumberFormatException: For input string: "x"',
    ),
    (f"{AWAITED}java.lang.NullPointerException\n\tat x", InvalidRequest, "NullPointerException"),
    (
        f"{LOST}java.io.IOException: No space left on device\n\tat x",
        InvalidRequest,
        "the table's files can't be written: No space left on device; free space",
    ),
    (
        (
            f"{FAILED}x\n\tat x\nCaused by: java.lang.RuntimeException: java.lang."
            "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat x"
        ),
        InvalidRequest,
        "Spark has no client for this place",
    ),
]


@pytest.mark.parametrize(("text", "wanted", "message"), WRAPPED)
def test_the_root_cause_of_an_error_of_the_gateway_decides(
    text: str, wanted: type[TxlakeError], message: str
) -> None:
    class Raised(Exception):
        __module__ = "py4j.protocol"

    with pytest.raises(wanted) as caught, spark_errors("t"):
        raise Raised(text)
    assert type(caught.value) is wanted
    assert message in str(caught.value)
    for noise in ("SQLSTATE", "\tat ", "o1.getResult"):
        assert noise not in str(caught.value)
    assert str(caught.value).rstrip()[-1] != ":"


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


def test_a_spark_that_is_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match=r"^t: Spark can't be reached"), spark_errors("t"):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    stumbled = AttributeError("'NoneType' object has no attribute 'setCallSite'")
    monkeypatch.setattr(SparkContext, "_gateway", object())
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    with pytest.raises(AttributeError), spark_errors("t"):
        raise stumbled
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(Unavailable, match="was stopped"), spark_errors("t"):
        raise stumbled


def test_ours_and_others_pass() -> None:
    with pytest.raises(InvalidRequest, match=r"^as it was$"), spark_errors("t"):
        raise InvalidRequest("as it was")
    with pytest.raises(KeyError), spark_errors("t"):
        raise KeyError("a bug")


def _interrupted(error: Exception) -> None:
    try:
        raise KeyboardInterrupt
    finally:
        raise error  # as PySpark's own clean-up does


@pytest.mark.parametrize("error", [OSError(errno.EIO, "text"), InvalidRequest("ours"), KeyError()])
def test_an_interrupt_stays_one(error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt), spark_errors("t"):
        _interrupted(error)


def test_an_error_after_an_interrupt_is_one() -> None:
    """Of what is done where an interrupt was caught."""

    def fails() -> None:
        with spark_errors("t"):
            raise OSError(errno.EIO, "text")

    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(Unavailable, match="text"):
            fails()


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


def test_what_a_subquery_fails_with_is_said(tmp_path: Path, spark: SparkSession) -> None:
    t = table(tmp_path / "t", spark, "id INT")
    t.run("INSERT INTO t VALUES (1)")
    refused = "t: Spark refused the statement: "
    two = "SELECT explode(array(2, 3))"
    for sql, message in {
        f"UPDATE t SET id = ({two})": rf"{refused}\[SCALAR_SUBQUERY_TOO_MANY_ROWS\] More",
        f"DELETE FROM t WHERE id = ({two})": rf"{refused}\[SCALAR_SUBQUERY_TOO_MANY_ROWS\] More",
        f"INSERT INTO t SELECT ({two})": rf"{refused}\[SCALAR_SUBQUERY_TOO_MANY_ROWS\] More",
        "UPDATE t SET id = (SELECT max(CAST(concat('x', id) AS INT)) FROM range(2))": (
            rf"{refused}\[CAST_INVALID_INPUT\] The value 'x\d'"
        ),
        "UPDATE t SET id = (SELECT max(raise_error('mine')) FROM range(2))": (
            "t: mine; nothing was written"
        ),
        "UPDATE t SET id = CAST(to_timestamp(string(id), 'YYYY') AS LONG)": (
            rf"{refused}\[INCONSISTENT_BEHAVIOR_CROSS_VERSION"
        ),
    }.items():
        with pytest.raises(InvalidRequest, match=message):
            t.run(sql)
    assert t.rows() == [(1,)]


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


@pytest.mark.parametrize(
    ("suggested", "kept"),
    [
        ("`__s0`, `__t12`", ""),
        (
            "`t`.`id`, `__txlake_row`, `x``, y`",
            " Did you mean one of the following? [`t`.`id`, `x``, y`].",
        ),
        ("`__mine`, `__sum`", " Did you mean one of the following? [`__mine`, `__sum`]."),
    ],
)
def test_columns_of_our_own_plans_are_not_suggested(suggested: str, kept: str) -> None:
    said = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `v` cannot be resolved."
    asked = f"{said} Did you mean one of the following? [{suggested}]. SQLSTATE: 42703; line 1"
    error = translated(AnalysisException(asked))
    assert str(error) == f"Spark refused the statement: {said}{kept}; line 1"
