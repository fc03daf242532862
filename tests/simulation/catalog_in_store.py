"""The catalog in a store in the simulated world: a replica for each process, over its store.

The log's requests get the faults of the store. Snapshots are more frequent, processes sure of their
replicas for less time, and entries deleted earlier than in reality, so that a run has all of it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from tests.simulation.stores import SimulatedStore
from tests.simulation.threads import THREADS
from txlake.catalog import shielding, unregistered
from txlake.catalog.database import Database
from txlake.catalog.replicated import log, replica
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.log import CatalogLog

if TYPE_CHECKING:
    from tests.simulation.process import Process

Value = TypeVar("Value")
FOLDER = "_txlake/catalog"
_MEMORY = "/dev/shm"
_SURE_MS = 100.0
_RETENTION_MS = 600
_SNAPSHOT_ENTRIES = 4
_engines: dict[str, sa.Engine] = {}


class SimulatedReplica(ReplicatedDatabase):
    """`ReplicatedDatabase` of one simulated process; its catalog's folder is in the warehouse."""

    def __init__(self, process: Process, store: SimulatedStore, **given: Any) -> None:
        self._process = process
        lease_ms = process.world.settings.lease_ms
        super().__init__(
            store, process.system, lease_ms=lease_ms, retention_ms=_RETENTION_MS, **given
        )
        process.world.replicas.append(self)

    def _engine(self, *, is_durable: bool) -> sa.Engine:
        """Return an engine that shares the statements that SQLAlchemy compiled for the others."""
        engine = super()._engine(is_durable=is_durable)
        first = _engines.setdefault("first", engine)
        engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
        return engine

    @property
    def display_url(self) -> str:
        """The URL, by which a process finds its own catalogs, with the simulated process."""
        return f"{self._store.url}?process={self._process.number}"

    def discard(self) -> None:
        """Close and remove the replica without a request to the store."""
        Database.close(self)
        self.log._replica.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run_shielded(self, work: Callable[[], Value], *, waits: bool = False) -> Value:
        return self._process.run_shielded(work)

    def is_interrupted(self) -> bool:
        return self._process.is_interrupted

    def caller(self) -> Any:
        return THREADS.current_thread()


def read_log(process: Process, store: SimulatedStore) -> sqlite3.Connection:
    """Return a database with the content of the catalog whose log is in `store`."""
    reader = CatalogLog(store, process.system, ":memory:", "reader", _RETENTION_MS)
    reader.load()
    reader.catch_up()
    found = sqlite3.connect(":memory:")
    found.deserialize(replica.database_bytes(reader._replica))
    reader.close()
    return found


@contextmanager
def short_log() -> Iterator[None]:
    """Let catalogs in a store write snapshots and delete entries after seconds in this block, and
    work in the main thread, to which the simulation delivers no signals.
    """
    changes: tuple[tuple[Any, str, object], ...] = (
        (log, "_SURE_MS", _SURE_MS),
        (log, "_SNAPSHOT_ENTRIES", _SNAPSHOT_ENTRIES),
        (shielding, "is_interruptible", lambda: False),
        (unregistered, "_of_process", {}),
        (tempfile, "tempdir", _MEMORY if os.path.isdir(_MEMORY) else tempfile.tempdir),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
