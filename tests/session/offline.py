"""A lake in memory whose Spark is never started: for what needs names, logs and locks alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, cast

from pyspark.sql import SparkSession

from tests.commit.log_of import metadata
from txlake.catalog import Catalog
from txlake.commands import HANDLERS
from txlake.commit.table_transaction import TableTransaction
from txlake.errors import Unavailable
from txlake.ports import NewTable, Store
from txlake.protocol.actions import Action, Metadata
from txlake.session.catalog_access import transaction_of
from txlake.session.engine import Engine, Handle
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.settings import Settings
from txlake.spark.plane import SparkPlane
from txlake.sql import parse
from txlake.sql.statements import TablePath
from txlake.storage import open_store
from txlake.system import System

_numbers = count(1)


class _Failing:
    """A store whose requests of some kinds fail, as long as a test wants it."""

    def __init__(self, inner: Store, failing: set[str], instead: Mapping[str, object]) -> None:
        self._inner = inner
        self._failing = failing
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        if name in self._failing:
            raise Unavailable(f"{self._inner.url}: {name} fails")
        return self._instead[name] if name in self._instead else getattr(self._inner, name)

    def at(self, folder: str) -> _Failing:
        return _Failing(self._inner.at(folder), self._failing, self._instead)


def plane_without_spark(system: System, settings: Settings) -> SparkPlane:
    """A data plane that nobody asks for rows."""
    return SparkPlane(make_spark=_no_spark, system=system, settings=settings, open_store=open_store)


class Offline:
    """One process's lake; others of the same place, or of the same catalog, can be made of it.

    Dropped tables are kept for `kept_ms`.

    Attributes:
        failing: names of the stores' methods that fail for now.
        instead: by the names of the stores' attributes, what is there instead for now.
    """

    def __init__(
        self,
        place: str | None = None,
        catalog: Catalog | None = None,
        lease_ms: int = 30_000,
        kept_ms: int = 0,
    ) -> None:
        self.place = place or f"memory://offline{next(_numbers)}"
        self.failing: set[str] = set()
        self.instead: dict[str, object] = {}
        system = System()
        self.catalog = catalog or Catalog("sqlite://", system, lease_ms=lease_ms)
        settings = Settings(dropped_table_retention_ms=kept_ms)
        self.plane = plane_without_spark(system, settings)
        self.engine = Engine(
            system=system,
            settings=settings,
            plane=self.plane,
            warehouse=self._open(self.place, {}),
            catalog=self.catalog,
            open_store=self._open,
        )
        self.session = Session(self.engine, HANDLERS)

    def _open(self, location: str, options: Mapping[str, str]) -> Store:
        store = _Failing(open_store(location, options), self.failing, self.instead)
        return cast(Store, store)

    def run(self, text: str, session: Session | None = None) -> None:
        """Statements that need no Spark, each in a transaction of its own."""
        for statement in parse(text):
            (session or self.session).carry_out(None, statement)

    def run_in(self, transaction: Transaction, text: str, session: Session | None = None) -> None:
        """Statements in an open transaction."""
        for statement in parse(text):
            (session or self.session).carry_out(transaction, statement)

    def stage(self, handle: Handle, actions: Sequence[Action], operation: str) -> None:
        """A commit of another writer's, past the catalog."""
        made = TableTransaction(handle.log, handle.log.latest())
        made.stage(actions, operation=operation)
        made.commit()

    def name_alone(self, name: str, location: str) -> None:
        """A table as an older txlake knew it: a name and a place, no head."""
        with transaction_of(self.engine, self.session.number) as transaction:
            new = NewTable(
                id=self.engine.system.new_id(),
                database="default",
                name=name,
                location=location,
                managed=False,
            )
            transaction.change_name(new, {})

    def path_table(self, location: str, *actions: Action, settings: Metadata | None = None) -> str:
        """A path table of columns id and p; its place."""
        handle = self.at(location)
        made = TableTransaction(handle.log, handle.log.latest_or_none())
        made.stage([settings or metadata(), *actions], operation="CREATE TABLE")
        made.commit()
        return handle.store.url

    def at(self, location: str) -> Handle:
        """The table at a place, as one that no lake knows."""
        return self.path_engine().at(location, TablePath(location))

    def path_engine(self) -> Engine:
        """An engine that knows places alone."""
        return Engine(
            system=self.engine.system,
            settings=self.engine.settings,
            plane=self.plane,
            open_store=self.engine.open_store,
        )

    def files(self, location: str) -> list[str]:
        """Everything below a place."""
        return sorted(stored.path for stored in open_store(location, {}).list(""))

    def tables(self) -> dict[str, str]:
        """By `database.name`, the places of the tables."""
        return {
            f"{entry.database}.{entry.name}": entry.location
            for database in self.catalog.databases()
            for entry in self.catalog.tables(database.name)
        }

    def domain(self, location: str) -> dict[str, str] | None:
        """Whose a table says to be."""
        found = self.at(location).log.latest().domains.get("txlake.catalog")
        return None if found is None else json.loads(found.configuration)


def _no_spark() -> SparkSession:
    raise AssertionError("Spark isn't needed here")
