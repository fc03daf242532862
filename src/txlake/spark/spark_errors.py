"""Spark's errors become txlake's, by what the caller does next.

Owns that table. What Spark refuses because of the statement or its data, and would refuse again, is
an InvalidRequest, a data file that is gone or damaged a CorruptTable. Only what can pass by itself
is Unavailable: executors, connections, memory, disks, a Spark that was stopped.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    PySparkAssertionError,
    PySparkAttributeError,
    PySparkException,
    PySparkNotImplementedError,
    PySparkPicklingError,
    PySparkTypeError,
    PySparkValueError,
    PythonException,
    SparkNoSuchElementException,
    SparkRuntimeException,
    SparkUpgradeException,
    UnsupportedOperationException,
)

from txlake.errors import CorruptTable, InvalidRequest, TxlakeError, Unavailable
from txlake.redaction import redact
from txlake.spark.java_errors import Cause, causes_of
from txlake.spark.log_levels import without_query_logs
from txlake.spark.manifest import TEMPORARY
from txlake.spark.missing_files import explain_missing_file
from txlake.spark.spark_sessions import context_class
from txlake.spark.table_access import TableAccess

P = ParamSpec("P")
R = TypeVar("R")

_OF_THE_STATEMENT = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    PySparkAssertionError,
    PySparkAttributeError,
    PySparkNotImplementedError,
    PySparkPicklingError,
    PySparkTypeError,
    PySparkValueError,
    PythonException,
    SparkNoSuchElementException,
    SparkRuntimeException,
    SparkUpgradeException,
    UnsupportedOperationException,
)
# Classes of SQLSTATE: of errors that tell of another one inside, and of what may pass by itself:
# connections, rolled back, resources, operators, systems, memory, sessions of the server.
_WRAPPING = frozenset({"58", "XX"})
_PASSING = frozenset({"08", "40", "53", "57", "58", "82", "HY"})
_PASSING_STATES = frozenset({"XXKDA", "XXKST", "XXSC0"})  # a cancelled job, streams, the server
_NO_SESSION = frozenset({"NO_ACTIVE_SESSION", "NO_ACTIVE_OR_DEFAULT_SESSION", "SESSION_NOT_SAME"})
# Java's classes where Spark has no condition: files, networks, memory, and Spark's own services.
_PASSING_KINDS = (
    "com.amazonaws.",
    "com.azure.",
    "com.google.",
    "com.microsoft.",
    "io.grpc.",
    "io.netty.",
    "java.io.",
    "java.lang.IllegalStateException",  # a stopped SparkContext
    "java.lang.InterruptedException",
    "java.lang.OutOfMemoryError",
    "java.net.",
    "java.nio.",
    "java.util.concurrent.",
    "javax.net.",
    "org.apache.hadoop.",
    "org.apache.http.",
    "org.apache.spark.",
    "software.amazon.",
)
_IN_PYTHON = "org.apache.spark.api.python.PythonException"
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
_IN_A_TASK = re.compile(
    r"^(?:[\w.]+\.)?(OSError|\w+Error|CorruptTable|InvalidRequest|Unavailable): (.*)$", re.MULTILINE
)
_OURS = {each.__name__: each for each in (CorruptTable, InvalidRequest, Unavailable)}
_OF_JAVA = re.compile(
    r"(No space left on device|Disk quota exceeded|Read-only file system|Permission denied)"
)
_NUMBER_OF = {os.strerror(number): number for number in _REFUSED}
_ERRNO = re.compile(r"\[[Ee]rrno (\d+)\]")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.*?)(?:\s*SQLSTATE: \w+)?\s*$", re.DOTALL)
_MISSING_TABLE = re.compile(
    r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view ((?:`(?:[^`]|``)+`\.?)+) cannot be found"
)
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_SUGGESTED = re.compile(r" Did you mean one of the following\? \[([^\]]*)\]\.?")
_SUGGESTION = re.compile(r"(?:`(?:[^`]|``)+`\.?)+")
_OWN_COLUMN = re.compile(r"`__(?:txlake_\w+|[st]\d+)`$")
_NOISE = re.compile(
    r"\s*(?:If necessary set \S*spark\.sql\.ansi\.enabled.*?\.(?= SQLSTATE|$)|SQLSTATE: \w+)",
    re.DOTALL,
)


def translated(error: Exception, table: str | None = None) -> TxlakeError:
    """Return txlake's error for one of Spark's; `table` is the one that the statement writes.

    CorruptTable for a data file that is gone or unreadable, InvalidRequest for what would fail
    again, and Unavailable for what may pass by itself.
    """
    causes = causes_of(error)
    every = "\n".join(cause.text for cause in causes)
    where = "" if table is None else f"{table}: "
    unreadable = _UNREADABLE.search(every)
    if unreadable is not None:
        return _unreadable(where, unreadable[1], unreadable[2], causes[-1].message)
    client = _NO_CLIENT.search("\n".join(f"{cause.kind}: {cause.text}" for cause in causes))
    if client is not None:
        return InvalidRequest(
            f"{where}Spark has no client for this place ({client[0]}); start it with the client "
            "(hadoop-aws, ...) in spark.jars.packages"
        )
    if _NO_MANIFEST.search(every) is not None:
        return InvalidRequest(
            f"{where}Spark's server can't read the temporary folder of this machine; name a folder "
            "or bucket that both reach: txlake.connect(..., settings=Settings(scratch_url=...))"
        )
    for cause in causes:
        if isinstance(error, PythonException) or cause.kind == _IN_PYTHON:
            return _of_a_task(where, cause.text)
        refused = _OF_JAVA.search(cause.text) if cause.kind.startswith("java.io.") else None
        if refused is not None:
            return _of_files(where, _NUMBER_OF.get(refused[1]), cause.text)
        raised = _RAISED.search(cause.text)
        if raised is not None:
            return InvalidRequest(f"{where}{raised[1]}; nothing was written")
    decisive = _decisive(causes)
    text = _SUGGESTED.sub(_suggestions, _NOISE.sub("", decisive.message))
    if _is_of_the_statement(error, decisive):
        return InvalidRequest(f"{where}Spark refused the statement: {text}")
    return Unavailable(f"{where}Spark could not run the statement: {text}")


def missing_table(error: BaseException) -> tuple[str, ...] | None:
    """Return the parts of a table name that Spark didn't find; None for any other error.

    Looks only at the error's `__cause__`, which must be an error of PySpark.
    """
    if not isinstance(error.__cause__, PySparkException):
        return None
    found = _MISSING_TABLE.search(str(error.__cause__))
    if found is None:
        return None
    return tuple(part.replace("``", "`") for part in _QUOTED.findall(found[1]))


def _suggestions(found: re.Match[str]) -> str:
    """Return Spark's suggestions without columns of txlake's own plans."""
    names = [name for name in _SUGGESTION.findall(found[1]) if not _OWN_COLUMN.search(name)]
    return f" Did you mean one of the following? [{', '.join(names)}]." if names else ""


def _decisive(causes: Sequence[Cause]) -> Cause:
    """Return the first cause with a Spark error class that doesn't just wrap another error
    (SQLSTATE 58 or XX); else the first with an error class, else the root.
    """
    named = [cause for cause in causes if cause.condition]
    plain = [cause for cause in named if cause.state[:2] not in _WRAPPING]
    return next(iter([*plain, *named]), causes[-1])


def _is_of_the_statement(error: Exception, cause: Cause) -> bool:
    """Return whether the statement itself is the cause, so that it would fail again."""
    if cause.state:
        is_broken = cause.state[:2] in _PASSING or cause.condition.startswith("INTERNAL_ERROR_")
        return not is_broken and cause.state not in _PASSING_STATES
    if cause.condition in _NO_SESSION:
        return False
    if isinstance(error, _OF_THE_STATEMENT):
        return True
    # Spark's errors about statements have a SQLSTATE; those without are about jobs and executors.
    return bool(cause.kind) and not cause.kind.startswith(_PASSING_KINDS)


def _unreadable(where: str, reason: str, file: str, text: str) -> TxlakeError:
    """Return the error for a data file that Spark can't read; `reason` is the subclass of its
    condition.

    InvalidRequest for a missing file that the log of a table read by this process explains, else
    CorruptTable.
    """
    if reason == "FILE_NOT_EXIST":
        found = explain_missing_file(file)
        if found is not None:
            return InvalidRequest(found)
        return CorruptTable(
            f"{where}data file {file} is in the log but not in the store; it was removed by hand, "
            "or by VACUUM before this version was read: restore the file, or read a later version"
        )
    return CorruptTable(f"{where}data file {file} can't be read: {text}")


def _of_a_task(where: str, text: str) -> TxlakeError:
    """Return the error for one that Python code raised inside a task.

    An error of txlake keeps its class; one of the operating system is judged by its number
    (`_of_files`); any other, the user's, is an InvalidRequest.
    """
    found = _IN_A_TASK.findall(text)
    kind, message = found[-1] if found else ("", text)
    if kind in _OURS:
        return _OURS[kind](f"{where}{message}")
    number = _ERRNO.search(message)
    if number is not None:
        return _of_files(where, int(number[1]), message)
    reason = f"{kind}: {message}" if found else text
    return InvalidRequest(f"{where}Python code in a Spark task failed: {reason}")


def _of_files(where: str, number: int | None, message: str) -> TxlakeError:
    """Return the error for one of the operating system, by its number.

    CorruptTable for a missing file; InvalidRequest, with advice, for a lack of permission or space,
    a read-only file system and a name that is too long; else Unavailable, also without a number.
    """
    if number == errno.ENOENT:
        return CorruptTable(f"{where}a file of the table is gone: {message}")
    advice = None if number is None else _REFUSED.get(number)
    if advice is not None:
        return InvalidRequest(f"{where}the table's files can't be written: {message}; {advice}")
    return Unavailable(f"{where}the table's files can't be reached: {message}")


@contextmanager
def _interrupts_first(handled: BaseException | None) -> Iterator[None]:
    """Raise, in place of an exception, the interrupt or exit during whose handling it was raised.

    `handled`: the exception that was being handled before the block.
    """
    try:
        yield
    except Exception as error:
        before = error.__context__
        while before is not None and before is not handled:
            if not isinstance(before, Exception):
                raise before from None
            before = before.__context__
        raise


@contextmanager
def spark_errors(table: str | None = None) -> Iterator[None]:
    """Raise Spark's errors in the block as txlake's; PySpark doesn't log them.

    Errors of the operating system and of connections are translated too; txlake's own and all
    others pass. `table` begins the messages.

    PySpark asks the JVM once more while a KeyboardInterrupt passes through it, on a connection that
    was given up: the error of that is no error, and the KeyboardInterrupt is raised.
    """
    handled = sys.exception()
    try:
        with _interrupts_first(handled), without_query_logs():
            yield
    except PySparkException as error:
        raise translated(error, table) from error
    except ConnectionError as error:  # py4j's
        raise _away(table, error) from error
    except OSError as error:
        where = "" if table is None else f"{table}: "
        raise _of_files(where, error.errno, str(error)) from error
    except Exception as error:
        # The JVM's errors that PySpark has no class for, and those of a connection; not imported,
        # as Connect has no py4j and the gateway no gRPC.
        if type(error).__module__.startswith(("py4j.", "grpc")):
            raise translated(error, table) from error
        if isinstance(error, AttributeError | AssertionError) and _is_stopped():
            raise _away(table, error) from error
        raise


def _away(table: str | None, error: Exception) -> Unavailable:
    """Return the error for a Spark that can't be reached or was stopped."""
    where = "" if table is None else f"{table}: "
    return Unavailable(
        f"{where}Spark can't be reached, or was stopped ({redact(str(error))}); start it again, "
        "and open the lake with txlake.connect(...)"
    )


def _is_stopped() -> bool:
    """Return whether the process's SparkContext was stopped; PySpark then fails with None."""
    context = context_class()
    return bool(context and context._gateway and context._active_spark_context is None)


def translating(
    operation: Callable[Concatenate[TableAccess, P], R],
) -> Callable[Concatenate[TableAccess, P], R]:
    """Decorate an operation on a table: Spark's errors become txlake's and name the table."""

    @functools.wraps(operation)
    def wrapped(work: TableAccess, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with spark_errors(work.snapshot.table):
            return operation(work, *args, **kwargs)

    return wrapped
