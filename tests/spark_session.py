"""The one Spark session of a test process: small, quiet, in UTC, with folders of its own.

Where its tasks run is chosen for the whole process by the option `--spark` (tests/conftest.py):

- `local`: in the process's own JVM;
- `cluster`: in two executors, processes of their own, that can't import txlake
  (tests/where/standalone.py);
- `connect`: in a Spark Connect server, a process of its own, that can't import txlake.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.where import standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("local", "cluster", "connect")
KIND = "TXLAKE_TEST_SPARK"
_ROOT = Path(__file__).resolve().parent.parent
_SERVER = _ROOT / "tests" / "where" / "connect_server.py"
# What PySpark sets in the process of a client; a server that inherits it takes itself for one.
_CLIENT = {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"}
# Python runs it at its start, wherever it is first on the path: a machine without txlake.
_WITHOUT_TXLAKE = """\
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"txlake", "tests"}:
            raise ModuleNotFoundError(f"No module named {name!r} on this machine")


sys.meta_path.insert(0, Absent())
"""


@cache
def spark_session() -> SparkSession:
    """Start Spark at the first call; every later call of this process returns the same session.

    Two cores, one gigabyte for the driver, two shuffle partitions, no UI, errors alone logged, all
    of its folders below one that goes when the process ends. All sides of it are in UTC.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"
    time.tzset()
    scratch = Path(tempfile.mkdtemp(prefix="txlake-test-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    spark, end = _STARTS[os.environ.get(KIND, "local")](scratch)
    atexit.register(end)
    return spark


def settings(scratch: Path) -> dict[str, str]:
    """The settings that every kind has."""
    return {
        "spark.app.name": "txlake-tests",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # As tests/class_archive.py has it, for programs that it doesn't reach.
        "spark.driver.extraJavaOptions": (
            "-Duser.timezone=UTC -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        ),
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


Started = tuple["SparkSession", Callable[[], None]]


def _local(scratch: Path) -> Started:
    # Imported here, so that tests without Spark don't wait for it.
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in settings(scratch).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    return spark, spark.stop


def _cluster(scratch: Path) -> Started:
    # Spark's workers keep their folders in its home: one of our own, made of the package's parts.
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    home = scratch / "home"
    home.mkdir()
    for part in Path(package.origin).parent.iterdir():
        (home / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(home)
    paths = {"spark.executorEnv.PYTHONPATH": str(without_txlake(scratch))}
    spark = standalone.start({**settings(scratch), **paths}, scratch / "workers")
    return spark, spark.stop


def _connect(scratch: Path) -> Started:
    server, url = connect_server(scratch)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()

    def end() -> None:
        if server.poll() is None:
            spark.stop()
        server.communicate(timeout=60)  # the end of its input is the end of the server

    return spark, end


def connect_server(scratch: Path, log: IO[str] | None = None) -> tuple[subprocess.Popen[str], str]:
    """A Spark Connect server and its URL; with a log it is in a process group of its own."""
    server = subprocess.Popen(
        [_server_python(), str(_SERVER), *(f"{k}={v}" for k, v in settings(scratch).items())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={
            **{name: value for name, value in os.environ.items() if name not in _CLIENT},
            "PYSPARK_PYTHON": _server_python(),
            "PYTHONPATH": str(without_txlake(scratch)),
        },
        cwd=scratch,
        start_new_session=log is not None,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    assert port.isdigit(), f"the Spark Connect server didn't start: {port}"
    return server, f"sc://127.0.0.1:{port}"


def _server_python() -> str:
    """This interpreter; the project's own where PySpark is the client alone."""
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    has_server = (Path(package.origin).parent / "jars").is_dir()
    return sys.executable if has_server else str(_ROOT / ".venv" / "bin" / "python")


def without_txlake(scratch: Path) -> Path:
    """A folder that, on the PYTHONPATH, makes an interpreter one that has no txlake."""
    folder = scratch / "without-txlake"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_WITHOUT_TXLAKE)
    return folder


_STARTS: dict[str, Callable[[Path], Started]] = {
    "local": _local,
    "cluster": _cluster,
    "connect": _connect,
}
