"""The schema: made by its steps, upgraded from each older one, by many openers at once."""

from __future__ import annotations

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

from tests.catalog.ledgers import User, execute, version
from tests.catalog.processes import started
from txlake.catalog import Catalog
from txlake.catalog.tables import metadata
from txlake.errors import InvalidRequest
from txlake.system import System

REPOSITORY = Path(__file__).parents[2]

# The relations as they were before Alembic.
NAMES_ALONE = (
    "CREATE TABLE txlake_schema (version INTEGER NOT NULL)",
    "INSERT INTO txlake_schema VALUES (1)",
    """CREATE TABLE txlake_databases (
        id VARCHAR(36) NOT NULL PRIMARY KEY, folded_name VARCHAR(255) NOT NULL UNIQUE,
        name VARCHAR(255) NOT NULL, comment TEXT, isolation VARCHAR(32),
        created_ms BIGINT NOT NULL)""",
    """CREATE TABLE txlake_tables (
        id VARCHAR(36) NOT NULL PRIMARY KEY,
        database_id VARCHAR(36) NOT NULL REFERENCES txlake_databases (id),
        folded_name VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL, location TEXT NOT NULL,
        managed BOOLEAN NOT NULL, created_ms BIGINT NOT NULL, UNIQUE (database_id, folded_name))""",
    "INSERT INTO txlake_databases VALUES ('D0', 'default', 'default', NULL, NULL, 1)",
    "INSERT INTO txlake_databases VALUES ('D1', 'sales', 'Sales', 'c', 'snapshot', 2)",
    "INSERT INTO txlake_tables VALUES ('T1', 'D1', 'orders', 'Orders', 'file:///o', TRUE, 4)",
    "INSERT INTO txlake_tables VALUES ('T0', 'D0', 'old', 'old', 'file:///x', FALSE, 3)",
)
WITH_PROPERTIES = (
    "ALTER TABLE txlake_databases ADD COLUMN properties TEXT",
    """UPDATE txlake_databases SET properties = '{"a": "b"}' WHERE id = 'D1'""",
    "UPDATE txlake_schema SET version = 2",
)


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


@pytest.mark.parametrize("version", [1, 2])
def test_a_catalog_of_an_older_txlake_is_upgraded(
    url: str, opened: Callable[[], Catalog], version: int
) -> None:
    execute(url, *NAMES_ALONE, *(WITH_PROPERTIES if version == 2 else ()))
    for _ in range(2):
        catalog = opened()
        default, sales = catalog.databases()
        assert (default.name, default.number) == ("default", 1)
        assert (sales.id, sales.name, sales.number, sales.comment) == ("D1", "Sales", 2, "c")
        assert (sales.isolation, sales.created_ms) == ("snapshot", 2)
        assert sales.properties == ({"a": "b"} if version == 2 else {})
        orders = catalog.find("sales", "ORDERS")
        assert orders is not None
        assert (orders.id, orders.name, orders.location) == ("T1", "Orders", "file:///o")
        assert (orders.managed, orders.number, orders.database_number) == (True, 4, 2)
        assert (orders.head, orders.created_ms, orders.modified_ms) == (None, 4, 4)
        old = catalog.find("default", "old")
        assert old is not None
        assert (old.id, old.number, old.managed) == ("T0", 3, False)
    added = User(opened()).name("items", database="sales")
    assert added.number == 5


def test_what_an_older_txlake_left_open_is_taken_to_read_from_the_beginning(
    url: str, opened: Callable[[], Catalog]
) -> None:
    user = User(opened())
    user.create("a")
    user.write(version("a", 1))
    transaction_id = user.begin()
    user.catalog.transactions.pin(transaction_id)
    execute(
        url,
        "ALTER TABLE txlake_sessions DROP COLUMN length_ms",
        "ALTER TABLE txlake_sessions DROP COLUMN warned",
        "ALTER TABLE txlake_transactions DROP COLUMN begin_sequence",
        "UPDATE txlake_transactions SET sequence = NULL",
        "DROP TABLE txlake_views",
        *(
            f"ALTER TABLE txlake_tables DROP COLUMN {name}"
            for name in ("dropped_ms", "kept_until_ms", "dropped_from", "is_told")
        ),
        "UPDATE txlake_revision SET version_num = '0003'",
    )
    upgraded = opened()
    [session] = upgraded.sessions.listed()
    assert (session.length_ms, session.warned) == (30_000, False)
    [entry] = upgraded.transactions.listed()
    assert (entry.id, entry.begin_sequence, entry.sequence) == (transaction_id, 0, None)
    assert upgraded.ledger.oldest_read("a") == 0


def test_a_catalog_of_a_newer_txlake_is_refused(url: str) -> None:
    Catalog(url, System()).close()
    execute(url, "UPDATE txlake_revision SET version_num = '9999'")
    with pytest.raises(InvalidRequest, match=r"9999, this txlake knows 0.*upgrade txlake"):
        Catalog(url, System())


def test_an_older_txlake_refuses_this_ones_catalog(url: str) -> None:
    """Releases before Alembic look at the one number."""
    Catalog(url, System()).close()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT version FROM txlake_schema").scalar_one()
    engine.dispose()
    assert found > 2


OPENING = """
import sys
from txlake.catalog import Catalog
from txlake.system import System

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
def test_processes_upgrade_it_at_once(url: str) -> None:
    execute(url, *NAMES_ALONE)
    processes = started(OPENING, url, count=4)
    told = {process.communicate("\n", timeout=120)[0] for process in processes}
    assert len(told) == 1
    assert told.pop().split()[1:] == ["2", "4"]


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
