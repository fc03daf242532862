"""Catalogs on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.catalog.ledgers import User, prepared
from tests.catalog.locking import Process
from tests.catalog.waiting import Script, scripted_on
from txlake.catalog import Catalog, shielding
from txlake.system import System


@pytest.fixture(params=["sqlite", "postgresql", "store"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that doesn't hold anything yet, of each kind that hosts share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    if request.param == "store":
        return (tmp_path / "catalog").as_uri()
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty SQLite or PostgreSQL database, for what a store doesn't have."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture
def direct() -> Iterator[None]:
    """The test begins transactions of the database itself, in the main thread."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shielding, "is_interruptible", lambda: False)
        yield


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], Catalog]]:
    """Open one more catalog object on the test's database, as another process would."""
    catalogs: list[Catalog] = []

    def open_it() -> Catalog:
        catalogs.append(Catalog(prepared(url), System()))
        return catalogs[-1]

    yield open_it
    for catalog in catalogs:
        catalog.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a new catalog in a SQLite file, for what is the same on each database."""
    return prepared(f"sqlite:///{tmp_path / 'lake.db'}")


@pytest.fixture
def sqlite_user(sqlite_url: str) -> Iterator[User]:
    """A session in that catalog."""
    catalog = Catalog(sqlite_url, System())
    yield User(catalog)
    catalog.close()


@pytest.fixture
def sqlite_other(sqlite_url: str) -> Iterator[User]:
    """A session of another process there."""
    catalog = Catalog(sqlite_url, System())
    yield User(catalog)
    catalog.close()


@pytest.fixture
def script() -> Script:
    """What happens while somebody waits for a lock."""
    return Script()


@pytest.fixture
def process(sqlite_url: str, script: Script) -> Iterator[Process]:
    """A process of that catalog whose waits follow the script."""
    with scripted_on(sqlite_url, script) as made:
        yield made
