"""The catalog behind pgbouncer in transaction mode: each transaction has another connection."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.catalog.ledgers import prepared
from tests.catalog.open_transactions import relaxed_transaction, write_transaction
from tests.disasters.catalogs import Ratified, RestoreBackup, ratified_in
from tests.disasters.rounds import Plan, run_round
from tests.peers import need
from tests.postgresql import PostgresServer
from txlake.catalog.database import Database
from txlake.system import System

pytestmark = pytest.mark.no_interop("the audit reads the tables by delta-rs itself")

# As few as there can be: clients get each other's connections all the time.
CONNECTIONS = 2


@pytest.fixture
def pooler(postgres: PostgresServer, tmp_path: Path) -> Iterator[sa.URL]:
    """The URL of a new database through pgbouncer."""
    program = shutil.which("pgbouncer")
    need("pgbouncer", found=program is not None)
    assert program is not None
    server = postgres.make_database(f"pooled_{uuid.uuid4().hex}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = server.query["host"]
    config = tmp_path / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n* = host={folder} user={server.username}\n"
        "[pgbouncer]\nauth_type = any\npool_mode = transaction\nunix_socket_dir =\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\ndefault_pool_size = {CONNECTIONS}\n"
        "max_client_conn = 1000\n"
    )
    # It refuses to run as root, and has to reach the socket of the server's user.
    owner = pwd.getpwuid(os.stat(str(folder)).st_uid).pw_name
    as_owner = ["-u", owner] if os.getuid() == 0 else []
    with subprocess.Popen(
        [program, *as_owner, config], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "process up" in line:
                break
        else:
            pytest.fail("pgbouncer didn't start")
        yield server.set(host="127.0.0.1", port=port, query={}, username=server.username)
        process.kill()


def shown(connection: sa.Connection, setting: str) -> str:
    return str(connection.exec_driver_sql(f"SHOW {setting}").scalar_one())


@pytest.mark.peer("pgbouncer")
@pytest.mark.usefixtures("direct")
def test_no_setting_of_one_transaction_reaches_another(pooler: sa.URL) -> None:
    """A ratification that doesn't wait for the disk would be lost with the server."""
    database = Database(pooler, System(), busy_timeout_s=7.0)
    for _ in range(2 * CONNECTIONS):
        with relaxed_transaction(database) as connection:
            assert shown(connection, "synchronous_commit") == "off"
            assert shown(connection, "lock_timeout") == "7s"
        with write_transaction(database) as connection:
            assert shown(connection, "synchronous_commit") == "on"
            assert shown(connection, "lock_timeout") == "7s"
    database.close()
    engine = sa.create_engine(pooler)
    for _ in range(2 * CONNECTIONS):
        with engine.connect() as connection:
            assert shown(connection, "synchronous_commit") == "on"
            assert shown(connection, "lock_timeout") == "0"
    engine.dispose()


@pytest.mark.usefixtures("direct")
def test_a_direct_connection_is_set_once(postgres_url: str) -> None:
    """What a server's own connection keeps costs no request in each transaction."""
    database = Database(postgres_url, System(), busy_timeout_s=7.0)
    sent: list[str] = []
    with relaxed_transaction(database):
        pass
    sa.event.listen(database._light, "before_cursor_execute", lambda *given: sent.append(given[2]))
    with relaxed_transaction(database) as connection:
        assert shown(connection, "synchronous_commit") == "off"
    database.close()
    assert sent == ["SHOW synchronous_commit"]


@dataclass(frozen=True, slots=True)
class Pooled:
    """A catalog for the disasters that is reached through the pooler, and isn't put back."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    def copy(self) -> RestoreBackup:
        raise AssertionError("nothing is put back here")

    def ratified(self) -> Ratified:
        return ratified_in(self.url)


@pytest.mark.peer("pgbouncer")
def test_processes_that_share_connections_lose_and_double_nothing(
    pooler: sa.URL, tmp_path: Path
) -> None:
    url = pooler.render_as_string(hide_password=False)
    prepared(url)
    verdict = run_round(tmp_path, Pooled(url), Plan(kills=4, freezes=1, restores=()), seed=3)
    assert verdict.faults == []
    assert verdict.events == {"kill": 4, "freeze": 1}
    assert verdict.outcomes["committed"] > 0
