"""What Spark's tasks need of txlake goes to Spark once a session: a cluster has none installed.

Owns the archive: the sources of the layers that tasks run, as a package whose name is made of what
is in them. So tasks import what their driver has, whatever txlake their machine has installed, and
two versions get along in one Spark. PySpark puts the archive on the path of every Python worker.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pkgutil
import re
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from txlake.spark.leftovers import temporary_folder
from txlake.spark.spark_sessions import is_connect

SHIPPED = (
    *("azure", "errors", "ports", "redaction"),
    *("datafiles", "protocol", "storage"),
)
"""Of txlake: these modules, and all of these packages."""

_SOURCES = Path(__file__).parents[1]
_IMPORT = re.compile(r"^( *(?:from|import) )txlake\b", re.MULTILINE)
_sent: set[str] = set()
_sending = threading.Lock()

Task = Callable[[Iterator[Any], int, int], Iterator[Any]]
"""Gets a partition's batches, the partition's number, and the attempt's."""
Function = Callable[[Iterator[Any]], Iterator[Any]]


def travelling(spark: SparkSession, task: Task) -> Function:
    """The function of Spark's that runs a task; the code that it needs is there then."""
    package, archive = code_archive()
    _send(spark, archive)
    data = pickled(task, package)

    # Nested, so that PySpark takes it along by value.
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext, cloudpickle

        context = TaskContext.get()
        assert context is not None
        task = cloudpickle.loads(data)
        yield from task(batches, context.partitionId(), context.taskAttemptId())

    return run


@functools.cache
def code_archive() -> tuple[str, Path]:
    """The name of the package with the code for tasks, and the archive that it is in."""
    files = sorted(
        path
        for name in SHIPPED
        for path in (_SOURCES / f"{name}.py", *(_SOURCES / name).rglob("*.py"))
        if path.exists()
    )
    sources = {str(path.relative_to(_SOURCES)): path.read_text("utf-8") for path in files}
    package = f"txlake_{hashlib.sha256(repr(sources).encode()).hexdigest()[:16]}"
    archive = temporary_folder("txlake-code-") / f"{package}.zip"
    with ZipFile(archive, "w") as made:
        # Without a time of their own: one content is one archive.
        made.writestr(ZipInfo(f"{package}/__init__.py"), "")
        for name, text in sources.items():
            renamed = _IMPORT.sub(rf"\g<1>{package}", text)
            made.writestr(ZipInfo(f"{package}/{name}"), renamed, compress_type=ZIP_DEFLATED)
    return package, archive


def _send(spark: SparkSession, archive: Path) -> None:
    """Gives Spark the archive, unless it has it: a Spark Connect session, else all of a Spark."""
    connect = is_connect(spark)
    context = None if connect else spark.sparkContext
    place = spark.session_id if context is None else context.applicationId  # type: ignore[attr-defined]
    with _sending:
        if place in _sent:
            return
        if context is None:
            spark.addArtifacts(str(archive), pyfile=True)
        else:
            context.addPyFile(str(archive))
        _sent.add(place)


def pickled(task: object, package: str) -> bytes:
    """A task whose classes and functions are those of the package in the archive."""
    data = io.BytesIO()
    _Pickler(data, package).dump(task)  # type: ignore[no-untyped-call]
    return data.getvalue()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, package: str) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self._package = package

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - pickle's
        if isinstance(obj, type | types.FunctionType) and "<locals>" not in obj.__qualname__:
            root, _, module = obj.__module__.partition(".")
            if root == "txlake" and module.partition(".")[0] in SHIPPED:
                return pkgutil.resolve_name, (f"{self._package}.{module}:{obj.__qualname__}",)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
