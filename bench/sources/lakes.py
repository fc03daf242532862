"""The lakes of the works on transactions: real tables, used below the session, without Spark.

Owns what such a work begins with, and a transaction over tables as a session holds one, whose data
is staged already.
"""

from __future__ import annotations

import functools
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import make_url

import txlake
from bench.stage import NotHere
from txlake.catalog import Catalog, TableEntry
from txlake.catalog.admission import StatementTransaction
from txlake.catalog.lookup import CatalogView, LookupRequest
from txlake.commit.catalog_managed import CatalogTable
from txlake.commit.commit_loop import CommittedTogether
from txlake.commit.lake_commit import Part, commit_together
from txlake.commit.part_states import PartSummaries
from txlake.commit.table_log import TableLog
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.log.predicates import bind, parse_predicate
from txlake.protocol.actions import Add, Remove
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

SYSTEM = System()
ROW = pa.table({"k": ["first"], "n": pa.array([0], pa.int64())})
"""What every table begins with; `k` is its partition column."""


@dataclass(slots=True)
class StagedLake:
    """A lake of tables `t0`, `t1` ..., for transactions whose data files are there already."""

    catalog: Catalog
    settings: Settings
    tables: list[TableEntry]
    session: int

    def logs(self, *numbers: int) -> list[TableLog]:
        """The logs of some tables that know nothing yet, as a process has them."""
        return [
            TableLog(
                open_store(self.tables[number].location),
                SYSTEM,
                self.settings,
                name=self.tables[number].name,
                catalog_table=CatalogTable(self.catalog.ledger, self.tables[number].id),
            )
            for number in numbers
        ]

    def begin(self) -> str:
        """A new transaction's id."""
        transaction_id = SYSTEM.new_id()
        self.catalog.transactions.begin(transaction_id, self.session)
        return transaction_id


@contextmanager
def staged_lake(
    folder: Path, database: str, tables: int, settings: Settings | None = None
) -> Iterator[StagedLake]:
    """A new lake with that many tables, on `SQLite` or `PostgreSQL`.

    Raises NotHere when there is no such database on this machine.
    """
    settings = settings or Settings()
    folder.mkdir(parents=True)
    url = f"sqlite:///{folder / 'catalog.db'}" if database == "SQLite" else new_postgresql()
    place = str(folder / "lake")
    with txlake.connect(place, catalog=url, settings=settings) as lake, lake.transaction() as tx:
        for number in range(tables):
            tx.write(ROW, f"t{number}", partition_by="k")
    catalog = Catalog(url, SYSTEM, lease_ms=settings.lease_ms)
    found = {entry.name: entry for entry in catalog.tables("default")}
    made = [found[f"t{number}"] for number in range(tables)]
    session = catalog.sessions.open()
    try:
        yield StagedLake(catalog, settings, made, session)
    finally:
        catalog.close()


@dataclass(slots=True)
class StagedTransaction:
    """What a session does with data that is staged: it is admitted, and commits on all tables."""

    lake: StagedLake
    id: str = field(default_factory=SYSTEM.new_id)
    parts: dict[str, TableTransaction] = field(default_factory=dict)

    def append(
        self, logs: Sequence[TableLog], files: Sequence[Add | Remove], where: str = ""
    ) -> None:
        """Begins, and stages the files on each table.

        With `where` what they hang on there is noted as read.
        """
        versions = self._admitted([log.name for log in logs])
        for log in logs:
            part = TableTransaction(log, log.snapshot(versions[log.name]))
            if where:
                part.read(bind(parse_predicate(where), part.base.schema), where)
            part.stage(files, operation="WRITE", parameters={"mode": "Append"})
            self.parts[log.name] = part

    def _admitted(self, names: Sequence[str]) -> Mapping[str, int]:
        """The tables' versions at the newest instant, locked as an INSERT locks them."""
        admission = self.lake.catalog.admissions.admit(
            StatementTransaction(id=self.id, session_id=self.lake.session, is_new=True, pins=True),
            LookupRequest(names=frozenset(("default", name) for name in names)),
            _locks,
            timeout_ms=-1,
        )
        seen = admission.view
        return {entry.name: seen.versions[entry.id] for entry in seen.tables.values()}

    def commit(self) -> CommittedTogether:
        """Commits, published as far as it can be."""
        catalog, parts = self.lake.catalog, tuple(self.parts.values())
        beside = PartSummaries(part.part_summary for part in parts)
        try:
            return commit_together(
                catalog.ledger,
                [Part(part.log, part.proposal(txn_id=self.id, parts=beside)) for part in parts],
                transaction_id=self.id,
                system=SYSTEM,
                settings=self.lake.settings,
            )
        except BaseException:
            catalog.transactions.end(self.id)
            raise


def _locks(seen: CatalogView) -> list[LockRequest]:
    entries = sorted(seen.tables.values(), key=lambda entry: entry.number)
    databases = dict.fromkeys(entry.database_number for entry in entries)
    return [
        *(
            LockRequest(
                resource=Resource(type=ResourceType.DATABASE, database=number, entity=number),
                mode=LockMode.S,
            )
            for number in databases
        ),
        *(lock_on(entry) for entry in entries),
    ]


def lock_on(entry: TableEntry) -> LockRequest:
    """The lock of a statement that adds rows to a table."""
    resource = Resource(
        type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number
    )
    return LockRequest(resource=resource, mode=LockMode.IX)


def data_file(key: str) -> Add:
    """A file of one row, as a write adds it. Nobody reads its rows here."""
    bounds: Mapping[str, object] = {"n": 1}
    counts = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"n": 0}}
    return Add(
        path=f"k={key}/part-00000-{SYSTEM.new_id()}.c000.snappy.parquet",
        partition_values={"k": key},
        size=700,
        modification_time=SYSTEM.now_ms(),
        data_change=True,
        stats=json.dumps({**counts, "tightBounds": True}, separators=(",", ":")),
    )


def new_postgresql(*, of_libpq: bool = False, host: str | None = None) -> str:
    """The URL of an empty schema on a server of this process, or the name of a new database.

    The name is as DuckLake takes it, `postgres:dbname=...`. `host`: the folder of another socket by
    which the server is reached. Raises NotHere without a server.
    """
    server = postgresql_server()
    name = f"lake_{SYSTEM.new_id().replace('-', '')}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE {'DATABASE' if of_libpq else 'SCHEMA'} {name}")
    engine.dispose()
    if of_libpq:
        folder = host or server.query["host"]
        return f"postgres:dbname={name} host={folder} user={server.username}"
    url = server.update_query_dict({"options": f"-csearch_path={name}"})
    if host is not None:
        url = url.update_query_dict({"host": host})
    return url.render_as_string(hide_password=False)


@functools.cache
def postgresql_server() -> sa.URL:
    """A new server with its defaults, every commit waiting for the disk; it ends with us."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about folders of the user's desktop
            from pgserver.postgres_server import get_server
    except ImportError as error:
        raise NotHere(f"a PostgreSQL server: {error}; pip install pgserver") from error
    # Not below our own folders: the server runs as another user when we are root.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders of the user's desktop
        server = get_server(Path(tempfile.mkdtemp(prefix="txlake_bench_")), cleanup_mode="delete")
    return make_url(server.get_uri()).set(drivername="postgresql+psycopg")
