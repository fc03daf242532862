"""A data file that Spark doesn't find is explained by its table's log.

Owns which tables' rows this process reads, by place, and that a DataFrame's own actions end in the
explanation: they run when no code of txlake is on the stack.
"""

from __future__ import annotations

import functools
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import unquote

from txlake.errors import InvalidRequest
from txlake.spark.java_errors import causes_of
from txlake.spark.reading import spark_url
from txlake.transaction.table_log import TableLog
from txlake.transaction.vacuumed import why_gone

GONE = re.compile(
    r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.\s"
)
_TABLES_MAX = 1000
_VERSIONS_MAX = 16
_ATTRIBUTE = "_txlake_explains"


class _Readings:
    """The tables that were read, the last one last, and the versions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_url: OrderedDict[str, tuple[weakref.ref[TableLog], list[int]]] = OrderedDict()

    def add(self, log: TableLog, version: int) -> None:
        url = log.store.url.rstrip("/")
        with self._lock:
            known = self._by_url.pop(url, None)
            versions = [] if known is None else [one for one in known[1] if one != version]
            self._by_url[url] = (weakref.ref(log), [*versions, version][-_VERSIONS_MAX:])
            while len(self._by_url) > _TABLES_MAX:
                self._by_url.popitem(last=False)

    def of(self, file: str) -> tuple[TableLog, str, list[int]] | None:
        """The table whose folder has the file, the file's decoded path in it, and the versions."""
        with self._lock:
            known = list(self._by_url.items())
        for url, (ref, versions) in reversed(known):
            log = ref()
            if log is None or not url.startswith(("file:", "s3", "gs", "az", "hdfs")):
                continue
            root = f"{spark_url(url)}/"
            for spelled in (file, unquote(file)):
                for place in (root, unquote(root)):
                    if spelled.startswith(place):
                        return log, unquote(file)[len(unquote(root)) :], versions
        return None


_READINGS = _Readings()


def record_read(log: TableLog, version: int) -> None:
    """Notes that rows of a table's version are read, now or by a DataFrame later."""
    _READINGS.add(log, version)


def explain_missing_file(file: str) -> str | None:
    """Why Spark doesn't find the data file; None where no table that was read tells."""
    found = _READINGS.of(file)
    return None if found is None else why_gone(*found)


def install_explanations() -> None:
    """Lets actions of DataFrames raise InvalidRequest with the explanation, where there is one.

    py4j raises the JVM's errors in one function. PySpark translates them around that function, and
    does so anew with each session that it makes. Every other error stays as it is.
    """
    from py4j import protocol  # not where Spark is reached by Connect
    from pyspark.errors.exceptions.captured import install_exception_handler

    plain: Callable[..., object] = protocol.get_return_value
    if hasattr(plain, _ATTRIBUTE):
        return

    @functools.wraps(plain)
    def explaining(*args: object, **kwargs: object) -> object:
        try:
            return plain(*args, **kwargs)
        except Exception as error:
            found = _explained(error)
            if found is None:
                raise
            raise found from None

    setattr(explaining, _ATTRIBUTE, True)
    protocol.get_return_value = explaining
    install_exception_handler()


def _explained(error: Exception) -> InvalidRequest | None:
    if type(error).__name__ not in {"Py4JJavaError", "SparkException"}:
        return None
    found = GONE.search("\n".join(cause.text for cause in causes_of(error)))
    text = None if found is None else explain_missing_file(found[1])
    return None if text is None else InvalidRequest(text)
