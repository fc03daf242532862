"""What Spark's tasks need of txlake goes to Spark once a session: a cluster has none installed.

Owns the archives: the sources of the layers that tasks run, or all of them for what Spark runs in
processes beside its driver, as a package whose name is made of what is in them. So tasks import
what their driver has, whatever txlake their machine has installed, and two versions get along in
one Spark. PySpark puts the archive on the path of every Python worker.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import marshal
import pkgutil
import re
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from txlake.local.temporary_folders import temporary_folder
from txlake.spark.spark_sessions import is_connect

SHIPPED = (
    *("azure", "errors", "ports", "redaction"),
    *("datafiles", "protocol", "storage"),
)
"""Of txlake: these modules, and all of these packages."""
_ALL_BUT = frozenset({"cli", "console", "server", "__main__.py", "__init__.py"})
# How Python marks compiled code that isn't compared with its source.
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)

_SOURCES = Path(__file__).parents[1]
_IMPORT = re.compile(r"^( *(?:from|import) )txlake\b", re.MULTILINE)
_sent: set[tuple[str, str]] = set()
_sending = threading.Lock()

Task = Callable[[Iterator[Any], int, int], Iterator[Any]]
"""Gets a partition's batches, the partition's number, and the attempt's."""
Function = Callable[[Iterator[Any]], Iterator[Any]]


def travelling(spark: SparkSession, task: Task) -> Function:
    """Return the function that runs a task on Spark's executors, after sending its code.

    `task` is pickled now; the function is for `mapInArrow` and the like.
    """
    package, archive = code_archive()
    _send(spark, archive)
    data = pickled(task, package)

    # Nested, so that PySpark takes it along by value.
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        """Yield what the task yields for the batches of one partition."""
        from pyspark import TaskContext, cloudpickle

        context = TaskContext.get()
        assert context is not None
        task = cloudpickle.loads(data)
        yield from task(batches, context.partitionId(), context.taskAttemptId())

    return run


@dataclass(frozen=True)
class Package:
    """All of txlake's code as a package for Spark's Python processes.

    They need the packages that txlake needs, and no txlake. Some that Spark runs on its driver's
    machine aren't told what was sent to it; they find the archive where it was made.
    """

    name: str
    archive: str


def whole_package(spark: SparkSession) -> Package:
    """Return the package with all of txlake's code, after sending it once for a session."""
    name, archive = _whole_archive()
    _send(spark, archive)
    return Package(name, str(archive))


@functools.cache
def code_archive() -> tuple[str, Path]:
    """Return the name of the package with the code for tasks, and its archive."""
    files = sorted(
        path
        for name in SHIPPED
        for path in (_SOURCES / f"{name}.py", *(_SOURCES / name).rglob("*.py"))
        if path.exists()
    )
    return _archive(files, compiled=False)


@functools.cache
def _whole_archive() -> tuple[str, Path]:
    """Return the package's name and the archive with compiled code, but for the CLI, console and
    server.
    """
    files = sorted(_SOURCES.rglob("*.py"))
    shipped = [one for one in files if one.relative_to(_SOURCES).parts[0] not in _ALL_BUT]
    return _archive(shipped, compiled=True)


def _archive(files: Sequence[Path], *, compiled: bool) -> tuple[str, Path]:
    """Write the files to a new archive; return the package's name, which is a hash of them, and the
    archive.

    Imports of txlake become imports of the package. With `compiled` the archive has each file's
    bytecode for this Python too. It is removed when the process ends.
    """
    sources = {str(path.relative_to(_SOURCES)): path.read_text("utf-8") for path in files}
    package = f"txlake_{hashlib.sha256(repr(sources).encode()).hexdigest()[:16]}"
    data = io.BytesIO()
    with ZipFile(data, "w") as made:
        # Without a time of their own: one content is one archive.
        made.writestr(ZipInfo(f"{package}/__init__.py"), "")
        for name, text in sources.items():
            renamed = _IMPORT.sub(rf"\g<1>{package}", text)
            place = f"{package}/{name}"
            made.writestr(ZipInfo(place), renamed, compress_type=ZIP_DEFLATED)
            if compiled:
                code = marshal.dumps(compile(renamed, place, "exec", dont_inherit=True))
                content = importlib.util.MAGIC_NUMBER + _UNCHECKED + code
                made.writestr(ZipInfo(f"{place}c"), content, compress_type=ZIP_DEFLATED)
    # All clients of a Spark Connect server put their files into one folder of it, where a name has
    # one content. What is compiled differs by Python's release, and a little from run to run.
    digest = hashlib.sha256(data.getvalue()).hexdigest()[:16]
    archive = temporary_folder("txlake-code-") / f"{package}-{digest}.zip"
    archive.write_bytes(data.getvalue())
    return package, archive


def _send(spark: SparkSession, archive: Path) -> None:
    """Send the archive to Spark, unless it has it: to a Connect session, else to the context."""
    connect = is_connect(spark)
    context = None if connect else spark.sparkContext
    place = spark.session_id if context is None else context.applicationId  # type: ignore[attr-defined]
    with _sending:
        if (place, archive.name) in _sent:
            return
        if context is None:
            spark.addArtifacts(str(archive), pyfile=True)
        else:
            context.addPyFile(str(archive))
        _sent.add((place, archive.name))


def pickled(task: object, package: str) -> bytes:
    """Return a pickled task whose classes and functions are those of the package in the archive."""
    data = io.BytesIO()
    _Pickler(data, package).dump(task)  # type: ignore[no-untyped-call]
    return data.getvalue()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, package: str) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self._package = package

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - pickle's
        """Return how an object is pickled: classes and functions of shipped modules by name, in the
        package.
        """
        if isinstance(obj, type | types.FunctionType) and "<locals>" not in obj.__qualname__:
            root, _, module = obj.__module__.partition(".")
            if root == "txlake" and module.partition(".")[0] in SHIPPED:
                return pkgutil.resolve_name, (f"{self._package}.{module}:{obj.__qualname__}",)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
