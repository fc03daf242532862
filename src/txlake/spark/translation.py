"""Spark's errors become txlake's, by what the caller does next.

Owns that table. What Spark refuses because of the statement or its data is an InvalidRequest, a
data file that is gone or damaged a CorruptTable, what failed in the cluster is Unavailable.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
    PySparkException,
    PythonException,
    SparkRuntimeException,
)

from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, Unavailable
from txlake.redaction import redacted
from txlake.spark.manifest import TEMPORARY
from txlake.spark.work import Work

P = ParamSpec("P")
R = TypeVar("R")

_OF_THE_STATEMENT = (
    AnalysisException,
    ParseException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PythonException,
    SparkRuntimeException,
)
_REFUSED = {
    errno.EACCES: "give this user the permission, or use another folder",
    errno.EDQUOT: "free space or raise the quota, and try again",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ENOSPC: "free space on the disk and try again",
    errno.EPERM: "give this user the permission, or use another folder",
    errno.EROFS: "the file system is read-only: mount it writable or use another folder",
}
_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (\S+?)\.\s"
)
_NO_CLIENT = re.compile(
    r"ClassNotFoundException: Class org\.apache\.hadoop\S+|No FileSystem for scheme \S+"
)
_NO_MANIFEST = re.compile(rf"\[PATH_NOT_FOUND\].*?/{TEMPORARY}")
_IN_A_TASK = re.compile(r"^(?:[\w.]+\.)?(OSError|\w+Error|CorruptTable): (.*)$", re.MULTILINE)
_OF_JAVA = re.compile(
    r"java\.io\.\w+: ([^\n]*(No space left on device|Disk quota exceeded|Read-only file system"
    r"|Permission denied)[^\n]*)"
)
_NUMBER_OF = {os.strerror(number): number for number in _REFUSED}
_ERRNO = re.compile(r"\[[Ee]rrno (\d+)\]")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.*?)(?:\s*SQLSTATE: \w+)?\s*$", re.DOTALL)
_NOISE = re.compile(
    r"\s*(?:If necessary set \S*spark\.sql\.ansi\.enabled.*?\.(?= SQLSTATE|$)|SQLSTATE: \w+)",
    re.DOTALL,
)


def translated(error: Exception, table: str | None = None) -> TxlakeError:
    """The error to raise from one of Spark's; `table` is the table that the statement writes."""
    text = _first_part(str(error))
    where = "" if table is None else f"{table}: "
    unreadable = _UNREADABLE.search(str(error))
    if unreadable is not None:
        return _unreadable(where, unreadable[1], unreadable[2], text)
    client = _NO_CLIENT.search(str(error))
    if client is not None:
        return InvalidRequest(
            f"{where}Spark has no client for this place ({client[0]}); start it with the client "
            "(hadoop-aws, ...) in spark.jars.packages"
        )
    if _NO_MANIFEST.search(text) is not None:
        return InvalidRequest(
            f"{where}Spark's server can't read the temporary folder of this machine; name a folder "
            "or bucket that both reach: txlake.connect(..., settings=Settings(scratch_url=...))"
        )
    if isinstance(error, PythonException):
        return _of_a_task(where, text)
    refused = _OF_JAVA.search(str(error))
    if refused is not None:
        return _of_files(where, _NUMBER_OF.get(refused[2]), refused[1])
    raised = _RAISED.search(text)
    if raised is not None:
        return InvalidRequest(f"{where}{raised[1]}; nothing was written")
    if isinstance(error, _OF_THE_STATEMENT):
        return InvalidRequest(f"{where}Spark refused the statement: {_NOISE.sub('', text)}")
    return Unavailable(f"{where}Spark could not run the statement: {text}")


def _first_part(text: str) -> str:
    """The message without credentials, stack traces and query plans."""
    text = redacted(text)
    text = text.split("\n\nJVM stacktrace")[0].split("\n\tat ")[0]
    return re.split(r";\n['+ ]*\w+", text)[0].strip()


def _unreadable(where: str, reason: str, file: str, text: str) -> TxlakeError:
    if reason == "FILE_NOT_EXIST":
        return CorruptTable(
            f"{where}data file {file} is in the log but not in the store; it was removed by hand, "
            "or by VACUUM before this version was read: restore the file, or read a later version"
        )
    return CorruptTable(f"{where}data file {file} can't be read: {text}")


def _of_a_task(where: str, text: str) -> TxlakeError:
    """The error for one that Python code raised inside a task: ours, or a user's function."""
    found = _IN_A_TASK.findall(text)
    kind, message = found[-1] if found else ("", text)
    if kind == "CorruptTable":
        return CorruptTable(f"{where}{message}")
    number = _ERRNO.search(message)
    if number is not None:
        return _of_files(where, int(number[1]), message)
    reason = f"{kind}: {message}" if found else text
    return InvalidRequest(f"{where}Python code in a Spark task failed: {reason}")


def _of_files(where: str, number: int | None, message: str) -> TxlakeError:
    if number == errno.ENOENT:
        return CorruptTable(f"{where}a file of the table is gone: {message}")
    advice = None if number is None else _REFUSED.get(number)
    if advice is not None:
        return InvalidRequest(f"{where}the table's files can't be written: {message}; {advice}")
    return Unavailable(f"{where}the table's files can't be reached: {message}")


@contextmanager
def spark_errors(table: str | None = None) -> Iterator[None]:
    """Raises what Spark raises inside as txlake's errors."""
    try:
        yield
    except PySparkException as error:
        raise translated(error, table) from error
    except OSError as error:
        where = "" if table is None else f"{table}: "
        raise _of_files(where, error.errno, str(error)) from error
    except Exception as error:
        # The JVM's errors that PySpark has no class for; not imported, Connect has no py4j.
        if type(error).__module__.startswith("py4j."):
            raise translated(error, table) from error
        raise


def translating(
    operation: Callable[Concatenate[Work, P], R],
) -> Callable[Concatenate[Work, P], R]:
    """An operation on a table whose Spark errors name the table and are txlake's."""

    @functools.wraps(operation)
    def wrapped(work: Work, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with spark_errors(work.snapshot.table):
            return operation(work, *args, **kwargs)

    return wrapped
