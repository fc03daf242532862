"""A real PostgreSQL server for the tests, one for all processes of a test run."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url


class PostgresServer:
    """A running server; each test makes its own database in it."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")

    def make_database(self, name: str) -> str:
        """The URL of a new, empty database."""
        engine = sa.create_engine(self._url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
        engine.dispose()
        return self._url.set(database=name).render_as_string(hide_password=False)


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
    try:
        yield PostgresServer(server.get_uri())
    finally:
        server.cleanup()
