"""What all tests share: Spark, the golden tables, and the check that other engines read ours."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.class_archive import VARIABLE, java_options
from tests.golden import ARCHIVE
from tests.interop import (
    DuckDB,
    check_newest,
    check_table,
    delta_tables,
    marked_versions,
    readable_versions,
)
from tests.limits import pytest_exception_interact as pytest_exception_interact
from tests.limits import pytest_timeout_cancel_timer as pytest_timeout_cancel_timer
from tests.limits import pytest_timeout_set_timer as pytest_timeout_set_timer
from tests.parts import PARTS, of_part, of_share
from tests.peers import SERVERS_OF_STORES, running
from tests.postgresql import PostgresServer, postgres_server
from tests.spark_session import KIND, KINDS, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import txlake

# Where a file takes minutes. Processes that share the files begin with these, so that none of them
# has one left when the others are done.
LONG = (
    "tests/mutation/",
    "tests/shared_tables/",
    "tests/soak/",
    "tests/models/",
    "tests/judge/",
    "tests/hermitage/",
    "tests/lake/tables/test_spark_catalog.py",
    "tests/test_demo.py",
    "tests/test_golden_rows.py",
    "tests/spark/test_merge.py",
    "tests/spark/test_tasks.py",
    "tests/lake/test_killed.py",
)

_reports = pytest.StashKey[pytest.TestReport]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--spark",
        choices=KINDS,
        default=KINDS[0],
        help="where Spark's tasks run; other than local, only tests marked runs_on for it run",
    )
    parser.addoption(
        "--duckdb",
        type=Path,
        help="a Python with DuckDB and its Delta extension, which reads the tests' tables too",
    )
    parser.addoption(
        "--part",
        choices=PARTS,
        default=PARTS[0],
        help="core: what isn't marked broad or peer, and a few of what is broad; rest: the others",
    )
    parser.addoption(
        "--share", default="1/1", help="2/3: every third file of what is chosen, from the second on"
    )
    parser.addoption(
        "--every-version",
        action="store_true",
        help="other engines read the rows of every version, not of the newest and checkpointed",
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ[KIND] = config.getoption("--spark")
    os.environ[VARIABLE] = java_options()
    config.addinivalue_line(
        "markers", "broad(keep=0): make test runs so many of its cells, make test-all the others"
    )
    config.addinivalue_line(
        "markers", "peer(name): needs a program of tests/peers.py, and is left to make test-all"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the test of a store that a server of tests/peers.py provides."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if (peer := SERVERS_OF_STORES.get(str(params.get("place")))) is not None:
        item.add_marker(pytest.mark.peer(peer))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kind = config.getoption("--spark")
    chosen = [item for item in items if kind in _kinds(item)]
    chosen = of_part(chosen, config.getoption("--part"))
    chosen = of_share(chosen, config.getoption("--share"))
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=list(set(items).difference(chosen)))
        items[:] = chosen
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def _kinds(item: pytest.Item) -> tuple[str, ...]:
    mark = item.get_closest_marker("runs_on")
    return KINDS[:1] if mark is None else mark.args


_SESSIONS = "pyspark.sql.session"


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The process's Spark session (tests/spark_session.py)."""
    return spark_session()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all processes of this test run have in common."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def golden(shared_folder: Path) -> Path:
    """The folder that the golden tables' paths are relative to. Nothing may write there.

    Unpacked once a test run, by whichever process comes first. tests/golden.py has the manifest.
    """
    if not ARCHIVE.exists():
        pytest.skip(f"no golden tables: {ARCHIVE} isn't there")
    folder, done = shared_folder / "golden", shared_folder / "golden.done"
    with (shared_folder / "golden.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir(exist_ok=True)
            # tar rather than tarfile: names hold quotes, colons, percent signs.
            subprocess.run(["tar", "-xzf", str(ARCHIVE), "-C", str(folder)], check=True)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def postgres(shared_folder: Path) -> Iterator[PostgresServer]:
    """The test run's PostgreSQL server."""
    pytest.importorskip("pgserver", reason="there is no PostgreSQL server for this Python")
    with postgres_server(shared_folder) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of a place in the server that doesn't hold anything yet."""
    return postgres.make_schema(f"lake_{uuid.uuid4().hex}")


@cache
def _reader() -> txlake.Lake:
    # One lake beside those of the tests reads for all of them: it names tables by place alone.
    import txlake
    from txlake.settings import Settings

    spark = spark_session()
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir"))
    settings = Settings(allow_outside_paths=("*",))  # shallow clones are among them
    return txlake.connect(f"{warehouse}-interop", spark=spark, settings=settings)


def _read_rows(table: Path, version: int) -> pa.Table:
    frame = _reader().read(str(table), version=version)
    if "variant" in frame.schema.simpleString():
        # `toArrow` fails where a variant is NULL.
        batches = frame._collect_as_arrow()  # type: ignore[operator]
        return pa.Table.from_batches(batches) if batches else frame.limit(0).toArrow()
    return frame.toArrow()


def _read_files(table: Path, version: int) -> list[str]:
    import txlake

    paths = txlake.Log(str(table)).snapshot(version=version).files().column("path")
    return [str(path) for path in paths.to_pylist()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with running(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report: pytest.TestReport = yield
    if call.when == "call":
        item.stash[_reports] = report
    return report


@pytest.fixture(scope="session")
def _duckdb(request: pytest.FixtureRequest) -> Iterator[DuckDB | None]:
    python = request.config.getoption("--duckdb")
    if python is None:
        yield None
        return
    with closing(DuckDB(python)) as duckdb:
        yield duckdb


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the Spark session is the active one that was it before.

    A test that makes another session the active one itself restores it (`own_active_session`).
    """
    before = _active()
    yield
    after = _active()
    if before is not None and after is not before:
        sys.modules[_SESSIONS].SparkSession._activeSession = before
        assert "own_active_session" in request.fixturenames, f"{after} is the active session now"


def _active() -> SparkSession | None:
    module = sys.modules.get(_SESSIONS)
    return None if module is None else module.SparkSession._activeSession


@pytest.fixture
def own_active_session() -> None:
    """Allow a test to leave another session as the active one; it is undone after the test."""


@pytest.fixture(autouse=True)
def _interop(request: pytest.FixtureRequest, _duckdb: DuckDB | None) -> Iterator[None]:
    """After each test, every Delta table below its tmp_path is read by delta-rs and compared.

    The files of every version are, and the rows of the newest and the checkpointed ones; with
    `--every-version` those of all.
    With `--duckdb` the newest version of each by DuckDB's Delta extension besides.

    A test whose tables aren't for others to read (damaged ones, say) says so with its reason:
    `@pytest.mark.no_interop("the log is damaged on purpose")`.
    """
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if request.config.getoption("--spark") != KINDS[0]:
        return  # the same tests write the same tables on the local Spark
    report = request.node.stash.get(_reports, None)
    if folder is None or report is None or not report.passed:
        return
    if (mark := request.node.get_closest_marker("no_interop")) is not None:
        assert mark.args, "no_interop needs its reason"
        return
    every = request.config.getoption("--every-version")
    rows_at = readable_versions if every else marked_versions
    for table in delta_tables(folder):
        check_table(table, _read_rows, _read_files, rows_at=rows_at)
        if _duckdb is not None:
            check_newest(table, _duckdb, _read_rows)
