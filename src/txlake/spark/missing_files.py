"""Explain a data file that Spark doesn't find by the log of its table.

Owns the record of table versions that this process reads, by URL, and the hook by which a
DataFrame's own actions raise the explanation: they run when no code of txlake is on the stack.
"""

from __future__ import annotations

import functools
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import unquote

from txlake.commit import missing_file
from txlake.commit.table_log import TableLog
from txlake.datafiles.decode_task import GONE
from txlake.errors import InvalidRequest
from txlake.spark.java_errors import causes_of
from txlake.spark.reading import spark_url

_FILE_NOT_EXIST = re.compile(
    r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.\s"
    rf"|{GONE}(\S+):\s"
)
_TABLES_MAX = 1000
_VERSIONS_MAX = 16
_WRAPPED = "_txlake_explains"


class _ReadVersions:
    """The tables and versions that were read, the least recently read first; bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_url: OrderedDict[str, tuple[weakref.ref[TableLog], list[int]]] = OrderedDict()

    def add(self, log: TableLog, version: int) -> None:
        """Record that a version of the log's table is read; keeps 16 versions a table, of 1,000
        tables.
        """
        url = log.store.url.rstrip("/")
        with self._lock:
            entry = self._by_url.pop(url, None)
            versions = [] if entry is None else [known for known in entry[1] if known != version]
            self._by_url[url] = (weakref.ref(log), [*versions, version][-_VERSIONS_MAX:])
            while len(self._by_url) > _TABLES_MAX:
                self._by_url.popitem(last=False)

    def of(self, file: str) -> tuple[TableLog, str, list[int]] | None:
        """Return the file's table, its decoded path in the table's folder, and the versions read.

        None if no table that was read has the file in its folder.
        """
        with self._lock:
            entries = list(self._by_url.items())
        for url, (ref, versions) in reversed(entries):
            log = ref()
            if log is None or not url.startswith(("file:", "s3", "gs", "az", "hdfs")):
                continue
            root = f"{spark_url(url)}/"
            for spelled in (file, unquote(file)):
                for root_spelling in (root, unquote(root)):
                    if spelled.startswith(root_spelling):
                        return log, unquote(file)[len(unquote(root)) :], versions
        return None


_READ_VERSIONS = _ReadVersions()


def record_read(log: TableLog, version: int) -> None:
    """Record that rows of a table's version are read, now or later by a DataFrame."""
    _READ_VERSIONS.add(log, version)


def explain_missing_file(file: str) -> str | None:
    """Return why Spark doesn't find the data file; None if no table that was read has it."""
    table = _READ_VERSIONS.of(file)
    return None if table is None else missing_file.explain_missing_file(*table)


def install_explanations() -> None:
    """Make actions of DataFrames raise InvalidRequest with the explanation, where there is one.

    py4j raises the JVM's errors in one function, which is replaced in this process, once. PySpark
    wraps it to translate them, anew with each session that it makes. Every other error stays as it
    is.
    """
    from py4j import protocol  # missing with Spark Connect
    from pyspark.errors.exceptions.captured import install_exception_handler

    original: Callable[..., object] = protocol.get_return_value
    if hasattr(original, _WRAPPED):
        return

    @functools.wraps(original)
    def explaining(*args: object, **kwargs: object) -> object:
        """Call the original, and raise the explanation instead of its error, if there is one."""
        try:
            return original(*args, **kwargs)
        except Exception as error:
            explained = _explained(error)
            if explained is None:
                raise
            raise explained from None

    setattr(explaining, _WRAPPED, True)
    protocol.get_return_value = explaining
    install_exception_handler()


def _explained(error: Exception) -> InvalidRequest | None:
    """Return the explanation of a missing data file as an error; None for any other error."""
    if type(error).__name__ not in {"Py4JJavaError", "PythonException", "SparkException"}:
        return None
    match = _FILE_NOT_EXIST.search("\n".join(cause.text for cause in causes_of(error)))
    text = None if match is None else explain_missing_file(match[1] or match[2])
    return None if text is None else InvalidRequest(text)
