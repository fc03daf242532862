"""A real PostgreSQL server for the tests, one for all processes of a test run."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import make_url

if TYPE_CHECKING:
    from pgserver.postgres_server import PostgresServer as PackagedServer


class PostgresServer:
    """A running server; each test makes its own place in it."""

    def __init__(self, server: PackagedServer) -> None:
        self._server = server
        self._url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")

    @property
    def url(self) -> sa.URL:
        """The URL of the server's first database."""
        return self._url

    def make_schema(self, name: str) -> str:
        """The URL of a new, empty schema of that name: as good as a database, and made faster."""
        self.execute(f"CREATE SCHEMA {name}")
        url = self._url.update_query_dict({"options": f"-csearch_path={name}"})
        return url.render_as_string(hide_password=False)

    def make_database(self, name: str) -> sa.URL:
        """The URL of a new, empty database of that name."""
        self.execute(f"CREATE DATABASE {name}")
        return self._url.set(database=name)

    def execute(self, *statements: str) -> None:
        """Run statements, each a transaction for itself."""
        engine = sa.create_engine(self._url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL's own, such as pg_dump, on the server's database."""
        from pgserver._commands import POSTGRES_BIN_PATH

        url = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        subprocess.run(
            [POSTGRES_BIN_PATH / program, f"--dbname={url}", *arguments],
            check=True,
            capture_output=True,
            text=True,
        )

    def copy_to(self, folder: Path) -> None:
        """Make a data folder of a standby that follows this server."""
        from pgserver._commands import POSTGRES_BIN_PATH

        url = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        subprocess.run(
            [POSTGRES_BIN_PATH / "pg_basebackup", "-d", url, "-R", "-D", folder, "-c", "fast"],
            check=True,
            capture_output=True,
            text=True,
            user=self._server.system_user,
        )

    def control(self, *arguments: str, data: Path) -> None:
        """Run pg_ctl on another data folder, as the server's user."""
        from pgserver._commands import pg_ctl  # type: ignore[attr-defined]

        pg_ctl(list(arguments), pgdata=data, user=self._server.system_user)

    def stop(self) -> None:
        """End the server at once, as a crash would: connections break, others are refused."""
        from pgserver._commands import pg_ctl  # type: ignore[attr-defined]

        user = self._server.system_user
        pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=self._server.pgdata, user=user)

    def start(self) -> None:
        """Start a stopped server again."""
        self._server.ensure_postgres_running()


@contextmanager
def postgres_server(shared_folder: Path) -> Iterator[PostgresServer]:
    """The server of a test run, started by the first who comes and stopped by the last who goes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders of the user's desktop
        from pgserver.postgres_server import get_server

        # Not below pytest's own folders: the server runs as another user when the tests are root's.
        name = hashlib.sha256(str(shared_folder).encode()).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"txlake_postgres_{name}"
        server = get_server(folder, cleanup_mode="delete")
    running = PostgresServer(server)
    # A power failure would end the test run too.
    running.execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    try:
        yield running
    finally:
        server.cleanup()
