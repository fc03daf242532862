"""The schema: made by its steps, upgraded from each older one, by many openers at once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flit_core import buildapi

from tests.catalog.ledgers import User, execute
from tests.catalog.processes import started
from txlake.catalog import Catalog, schema
from txlake.catalog.opening import open_database
from txlake.catalog.relations import REVISION, metadata
from txlake.errors import InvalidRequest
from txlake.system import System

REPOSITORY = Path(__file__).parents[2]

# A step after those that there are.
NEXT_REVISION = "0012"
NEXT_STEP = """
import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade():
    op.add_column(
        "txlake_databases", sa.Column("motto", sa.String(255), nullable=False, server_default="")
    )
    op.execute("UPDATE txlake_databases SET motto = folded_name || '!'")
"""


@pytest.fixture
def url(database_url: str) -> str:
    """Here databases alone: a store's catalog is upgraded in its replica."""
    return database_url


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """The steps of a release to come."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema._MIGRATIONS, folder)
    (folder / "versions" / "v0012_next.py").write_text(NEXT_STEP)
    return folder


@pytest.fixture
def released(steps: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, this txlake is the release to come."""

    def release() -> None:
        monkeypatch.setattr(schema, "_MIGRATIONS", steps)
        monkeypatch.setattr(schema, "REVISION", NEXT_REVISION)

    return release


def values(url: str, query: str) -> list[object]:
    """The one column that a query asks the database itself for."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = list(connection.exec_driver_sql(query).scalars())
    engine.dispose()
    return found


def test_the_steps_make_what_the_relations_say(url: str) -> None:
    Catalog(url, System()).close()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        options = {"version_table": "txlake_revision", "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, metadata)
    engine.dispose()
    # One relation is there for older releases alone.
    assert [(found[0], found[1].name) for found in differences] == [
        ("remove_table", "txlake_schema")
    ]


def test_a_catalog_of_an_older_txlake_is_upgraded(
    url: str, opened: Callable[[], Catalog], released: Callable[[], None]
) -> None:
    older = opened()
    older.create_database("Sales", comment="c", isolation="snapshot", properties={"a": "b"})
    orders = User(older).name("Orders", database="sales")
    before = (older.lake_id, older.databases(), older.find("sales", "ORDERS"))
    released()
    for _ in range(2):
        upgraded = opened()
        assert (upgraded.lake_id, upgraded.databases(), upgraded.find("sales", "orders")) == before
        assert values(url, "SELECT motto FROM txlake_databases ORDER BY number") == [
            "default!",
            "sales!",
        ]
        assert values(url, "SELECT version_num FROM txlake_revision") == [NEXT_REVISION]
    assert User(upgraded).name("items", database="sales").number == orders.number + 1


def test_a_catalog_of_the_first_release_is_upgraded(
    url: str, opened: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(schema, "REVISION", "0006")
        database = open_database(url, System())
        database.run_shielded(
            lambda: database.write(lambda connection: schema.upgrade(database, connection))
        )
        database.close()
    execute(
        url,
        "INSERT INTO txlake_facts VALUES ('lake', 'the lake')",
        "INSERT INTO txlake_databases (id, number, folded_name, name, created_ms) "
        "VALUES ('d', 1, 'default', 'default', 1)",
        "INSERT INTO txlake_tables (id, number, database_id, folded_name, name, location, managed, "
        "created_ms, modified_ms) VALUES ('t', 2, 'd', 'orders', 'Orders', 'file:///orders', TRUE, "
        "1, 1)",
    )
    assert values(url, "SELECT version_num FROM txlake_revision") == ["0006"]
    now = opened()
    assert values(url, "SELECT version_num FROM txlake_revision") == [REVISION]
    entry = now.find("default", "orders")
    assert entry is not None
    assert (now.lake_id, entry.id, entry.location) == ("the lake", "t", "file:///orders")
    now.identities.advance(entry.id, "digest", lambda mark: 7 if mark is None else 0)
    assert values(url, "SELECT mark FROM txlake_identities") == [7]


@pytest.mark.parametrize("version", [1, 3])
def test_a_catalog_of_a_release_that_never_was_is_refused(url: str, version: int) -> None:
    execute(
        url,
        "CREATE TABLE txlake_schema (version INTEGER NOT NULL)",
        f"INSERT INTO txlake_schema VALUES ({version})",
    )
    if version == 3:
        execute(
            url,
            "CREATE TABLE txlake_revision (version_num VARCHAR(32) NOT NULL)",
            "INSERT INTO txlake_revision VALUES ('0005')",
        )
    found = "0005" if version == 3 else "0001"
    for _ in range(2):
        with pytest.raises(
            InvalidRequest,
            match=rf"revision {found}, of a txlake that was never released.*is 0006.*recover\(\)",
        ):
            Catalog(url, System())
    assert values(url, "SELECT version FROM txlake_schema") == [version]


def test_a_catalog_of_a_newer_txlake_is_refused(url: str) -> None:
    Catalog(url, System()).close()
    execute(url, "UPDATE txlake_revision SET version_num = '9999'")
    with pytest.raises(InvalidRequest, match=r"9999, this txlake knows 0.*upgrade txlake"):
        Catalog(url, System())


def test_an_older_txlake_refuses_an_upgraded_catalog(
    url: str, released: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    released()
    Catalog(url, System()).close()
    monkeypatch.undo()
    with pytest.raises(InvalidRequest, match=r"revision 0012, this txlake knows 0011"):
        Catalog(url, System())


def test_an_older_txlake_refuses_this_ones_catalog(url: str) -> None:
    """Those from before Alembic look at the one number."""
    Catalog(url, System()).close()
    assert values(url, "SELECT version FROM txlake_schema") == [3]


OPENING = """
import sys
from pathlib import Path
from txlake.catalog import Catalog, schema
from txlake.catalog.opening import open_database
from txlake.system import System

schema._MIGRATIONS, schema.REVISION = Path(sys.argv[2]), "0011"
sys.stdin.readline()
catalog = Catalog(sys.argv[1], System())
print(catalog.lake_id, len(catalog.databases()), catalog.find("sales", "orders").number)
catalog.close()
"""


OPENING_NEW = """
import sys
from txlake import catalog
from txlake.system import System

opened = catalog.Catalog(sys.argv[1], System())
print(catalog.__file__, opened.databases()[0].name)
opened.close()
"""


@pytest.mark.broad(keep=1)
def test_processes_upgrade_it_at_once(url: str, opened: Callable[[], Catalog], steps: Path) -> None:
    older = opened()
    older.create_database("sales")
    number = User(older).name("orders", database="sales").number
    processes = started(OPENING, url, str(steps), count=4)
    told = {process.communicate("\n", timeout=120)[0] for process in processes}
    assert told == {f"{older.lake_id} 2 {number}\n"}


def test_an_installed_txlake_has_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    wheel = buildapi.build_wheel(str(tmp_path))
    with zipfile.ZipFile(tmp_path / wheel) as archive:
        archive.extractall(tmp_path / "site")
    arguments = [sys.executable, "-c", OPENING_NEW, f"sqlite:///{tmp_path / 'catalog.db'}"]
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    place, name = done.stdout.split()
    assert place.startswith(str(tmp_path / "site"))
    assert name == "default"


def test_alembic_is_imported_by_who_upgrades_alone(tmp_path: Path) -> None:
    program = (
        "import sys; from txlake.catalog import Catalog; from txlake.system import System; "
        "Catalog(sys.argv[1], System()).close(); print('alembic' in sys.modules)"
    )
    arguments = [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'catalog.db'}"]
    environment = {"PYTHONPATH": str(REPOSITORY / "src")}
    said = [
        subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [done.stdout.strip() for done in said] == ["True", "False"]
