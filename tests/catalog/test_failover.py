"""The catalog's PostgreSQL server dies, and its standby takes over."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import prepared
from tests.catalog.open_transactions import relaxed_transaction, write_transaction
from tests.disasters.catalogs import Ratified, RestoreBackup, ratified_in
from tests.disasters.rounds import Plan, run_round
from tests.postgresql import PostgresServer, postgres_server
from txlake.catalog.database import Database
from txlake.system import System

pytestmark = [
    pytest.mark.broad,
    pytest.mark.no_interop("the audit reads the tables by delta-rs itself"),
]


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its standby; every commit waits for both.

    Attributes:
        url: of both, whichever takes writes.
        options: none; for catalogs in a store.
    """

    primary: PostgresServer
    standby: Path
    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    def copy(self) -> RestoreBackup:
        """Return what makes the standby take over; nothing is put back."""
        return self._fail_over

    def ratified(self) -> Ratified:
        return ratified_in(self.url)

    def _fail_over(self) -> None:
        self.primary.stop()
        self.primary.control("-w", "promote", data=self.standby)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pytest.importorskip("pgserver", reason="there is no PostgreSQL server for this Python")
    # The server's user may not enter pytest's folders.
    folder = Path(tempfile.mkdtemp(prefix="txlake_pair_"))
    folder.chmod(0o777)
    with postgres_server(tmp_path) as primary:
        standby, sockets = folder / "data", folder / "sockets"
        sockets.mkdir(mode=0o777)
        sockets.chmod(0o777)
        primary.copy_to(standby)
        primary.control(
            "-w", "-o", f'-h "" -k {sockets}', "-l", f"{standby}/log", "start", data=standby
        )
        primary.execute(
            "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
        )
        hosts = [str(primary.url.query["host"]), str(sockets)]
        url = primary.url.set(query={"host": hosts, "target_session_attrs": "read-write"})
        try:
            yield Pair(primary, standby, url.render_as_string(hide_password=False))
        finally:
            primary.control("-m", "immediate", "stop", data=standby)
            primary.start()
            shutil.rmtree(folder, ignore_errors=True)


def test_no_acknowledged_commit_is_lost_with_the_primary(pair: Pair, tmp_path: Path) -> None:
    prepared(pair.url)
    plan = Plan(kills=2, freezes=1, restores=("none",))
    verdict = run_round(tmp_path / "round", pair, plan, seed=5)
    assert verdict.faults == []
    assert verdict.events == {"kill": 2, "freeze": 1, "copy": 1, "restore": 1}
    assert verdict.outcomes["committed"] > 0
    assert not verdict.lost_transactions


@pytest.mark.usefixtures("direct")
def test_a_transaction_sees_commits_that_came_while_it_waited(postgres: PostgresServer) -> None:
    """At REPEATABLE READ, which a server may have as its default, it would check old heads."""
    name = f"repeatable_{os.getpid()}"
    url = postgres.make_database(name)
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    database = Database(url, System())
    other = sa.create_engine(url)
    with other.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE heads AS SELECT 1 AS version")
    for begin in (write_transaction, relaxed_transaction):
        with begin(database) as connection:
            before = connection.exec_driver_sql("SELECT version FROM heads").scalar_one()
            with other.begin() as beside:
                beside.exec_driver_sql("UPDATE heads SET version = version + 1")
            query = "SELECT version FROM heads FOR UPDATE"
            assert connection.exec_driver_sql(query).scalar_one() == before + 1
    other.dispose()
    database.close()
