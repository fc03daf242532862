"""Clients that commit to open tables as another engine does: they stage, and a server ratifies.

They are txlake's own sessions with a ledger that calls the server's part of the engine instead of
the catalog, so that every check of transactions applies to them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from tests.simulation.records import Violation
from txlake.catalog import AnyCatalog, Catalog
from txlake.commit.foreign_commit import (
    Busy,
    CommitRequest,
    Overtaken,
    Refused,
    Rejected,
    StagedFile,
    commit_foreign_together,
)
from txlake.commit.publication import staged_path
from txlake.commit.table_log import TableLog
from txlake.errors import CorruptTable, OutcomeUnknown, Unavailable
from txlake.ports import HeadsMoved, Ledger, Ratification, Ratified, TurnTaken
from txlake.protocol.actions import CommitInfo, decode_actions
from txlake.session.bounded_cache import BoundedCache
from txlake.session.engine import Engine

OPEN = ("delta.feature.catalogManaged", "supported")
_COMMIT_BYTES_MAX = 1 << 24


def foreign_engine(engine: Engine) -> Engine:
    """Return an engine of the same lake that commits to open tables through a server in this
    process.
    """
    made = copy.copy(engine)
    made.catalog = cast(AnyCatalog, _ForeignCatalog(engine.catalog.of_lake(), _served(engine)))
    made._logs = BoundedCache(engine.settings.tables_cached)
    return made


def _served(engine: Engine) -> Engine:
    """Return the server's engine, which has read its logs itself."""
    made = copy.copy(engine)
    made._logs = BoundedCache(engine.settings.tables_cached)
    return made


class _ForeignCatalog:
    """The lake's catalog with a `_ForeignLedger`."""

    def __init__(self, catalog: Catalog, server: Engine) -> None:
        self._catalog = catalog
        self.ledger = cast(Ledger, _ForeignLedger(catalog, server))

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)


class _ForeignLedger:
    """The lake's ledger; commits to open tables are ratified by the server."""

    def __init__(self, catalog: Catalog, server: Engine) -> None:
        self._catalog = catalog
        self._server = server

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog.ledger, name)

    def ratify(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        """As `Ledger.ratify`. Raises Violation if the server refuses a valid commit, and
        AdmissionOutdated.
        """
        if request.names or any(one.staged is None for one in request.commits):
            return self._catalog.ledger.ratify(request)
        logs = {one.table_id: self._log(one.table_id) for one in request.commits}
        asked = [
            CommitRequest(
                logs[one.table_id], _staged_file(logs[one.table_id], one.version, str(one.staged))
            )
            for one in request.commits
        ]
        if not asked:
            return self._catalog.ledger.ratify(request)
        outcome = commit_foreign_together(
            asked,
            request.unchanged,
            transaction_id=request.transaction_id,
            bytes_max=_COMMIT_BYTES_MAX,
        )
        if not isinstance(outcome, Rejected):
            return self._ratified()
        [(table, cause), *_] = outcome.causes.items()
        match cause:
            case Overtaken():
                return HeadsMoved(heads=self._heads([*logs, *request.unchanged]))
            case Busy():
                return TurnTaken(transaction_id="another")
            case Refused(reason):
                # What a VACUUM that didn't know of the transaction has deleted is no fault of it.
                self._catalog.unregistered.require_undisturbed(request.transaction_id)
                raise Violation(f"{table}: a sound commit was refused: {reason}")

    def _ratified(self) -> Ratified:
        """Return the ratification. Raises OutcomeUnknown if the ledger can't be read any more."""
        try:
            sequence = self._catalog.ledger.sequence()
        except (Unavailable, CorruptTable) as error:
            raise OutcomeUnknown("it is committed, and the reply was lost") from error
        return Ratified(sequence=sequence, time_ms=self._server.system.now_ms())

    def _log(self, table_id: str) -> TableLog:
        found = next(
            entry
            for database in self._catalog.databases()
            for entry in self._catalog.tables(database.name)
            if entry.id == table_id
        )
        return self._server.at_entry(found).log

    def _heads(self, tables: list[str]) -> Mapping[str, int]:
        heads = {table: self._catalog.ledger.head(table) for table in tables}
        return {table: head.version for table, head in heads.items() if head is not None}


def _staged_file(log: TableLog, version: int, name: str) -> StagedFile:
    """Return what a client reports of its staged commit."""
    content = log.store.get(staged_path(name))
    infos = [one for one in decode_actions(content, file=name) if isinstance(one, CommitInfo)]
    time: Any = infos[0].in_commit_timestamp_ms
    return StagedFile(version=version, name=name, timestamp_ms=time, size_bytes=len(content))
