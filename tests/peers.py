"""Programs that `make test` doesn't set up, for tests of the mark `peer`.

Such a test is left to `make test-all`, which brings the programs (the Makefile's target `peers`);
CI installs those of Debian besides. `need` keeps the marks complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PEERS = {
    "airflow": "tools/python_peer.sh airflow brings it",
    "azurite": "tools/servers.sh brings it, and it needs node",
    "chromium": "apt-get install chromium chromium-driver",
    "dagster": "tools/python_peer.sh dagster brings it",
    "dbapi20": "tools/python_peer.sh dbapi-compliance brings it",
    "dbt": "tools/python_peer.sh dbt-spark brings it",
    "duckdb": "tools/python_peer.sh duckdb-delta brings it",
    "fake-gcs-server": "tools/servers.sh builds it, with Go",
    "flight-jdbc": "tools/flight_jdbc.sh brings it, with Maven, and it needs a JDK's javac",
    "great-expectations": "tools/python_peer.sh gx brings it",
    "hdfs": "tools/servers.sh brings it, with Maven",
    "iceberg-spark": "tools/iceberg_spark.sh brings it, with Maven",
    "judge": "tools/judge.sh builds it, with cargo",
    "kernel": "tools/servers.sh brings it, with Maven, and it needs a JDK's javac",
    "pgbouncer": "apt-get install pgbouncer",
    "rust-kernel": "tools/rust_kernel.sh builds it, with cargo",
    "sqlalchemy-2.0": "tools/python_peer.sh sqlalchemy-2.0 brings it",
    "spin": "apt-get install spin gcc",
    "unity-server": "tools/unity_server.sh CHECKOUT builds it",
}
"""By program how to get it."""

SERVERS_OF_STORES = {"azure": "azurite", "gcs": "fake-gcs-server", "hdfs": "hdfs"}
"""By value of the parameter `place` the server of that store."""

_running: list[pytest.Item] = []


@contextmanager
def running(item: pytest.Item) -> Iterator[None]:
    """Make a test the one that `need` is called for."""
    _running.append(item)
    try:
        yield
    finally:
        _running.remove(item)


def peers_of(item: pytest.Item) -> set[str]:
    """Return the programs that a test is marked to need.

    Raises:
        ValueError: a mark names a program that isn't listed.
    """
    named = {str(name) for mark in item.iter_markers("peer") for name in mark.args}
    if unknown := named - PEERS.keys():
        raise ValueError(f"{item.nodeid} is marked peer{sorted(unknown)}: known are {list(PEERS)}")
    return named


def need(peer: str, *, found: bool) -> None:
    """Require a program for the running test: skip the test where the program isn't installed.

    A test without the mark fails even where the program is installed, because `make test` would run
    or skip it by chance. Outside of a test, as in `make console-pictures`, the process ends with a
    line that says what to install.
    """
    if not _running and not found:
        raise SystemExit(f"{peer} isn't installed: {PEERS[peer]}")
    if _running and peer not in peers_of(_running[-1]):
        pytest.fail(f'this test needs {peer}: mark it @pytest.mark.peer("{peer}")', pytrace=False)
    if not found:
        pytest.skip(f"{peer} isn't installed: {PEERS[peer]}")
