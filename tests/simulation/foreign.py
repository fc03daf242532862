"""Clients that commit as another engine does: they stage a commit, and a server judges it.

They are txlake's own sessions, whose ledger asks the server's part of the engine in place of the
catalog: so all that is known of transactions is known of theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from tests.simulation.history import Doubt
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
    """The same lake, whose commits of open tables go through a server in the same process."""
    made = copy.copy(engine)
    made.catalog = cast(AnyCatalog, _Catalog(engine.catalog.of_lake(), _served(engine)))
    made._logs = BoundedCache(engine.settings.tables_cached)
    return made


def _served(engine: Engine) -> Engine:
    """The server's engine: what it knows of logs, it has read itself."""
    made = copy.copy(engine)
    made._logs = BoundedCache(engine.settings.tables_cached)
    return made


class _Catalog:
    """The lake's catalog, but for who makes versions."""

    def __init__(self, catalog: Catalog, server: Engine) -> None:
        self._catalog = catalog
        self.ledger = cast(Ledger, _Ledger(catalog, server))

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)


class _Ledger:
    """The lake's ledger, but that a server ratifies what was staged for open tables."""

    def __init__(self, catalog: Catalog, server: Engine) -> None:
        self._catalog = catalog
        self._server = server

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog.ledger, name)

    def ratify(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        """As `Ledger.ratify`. Raises Doubt where the server refuses what a sound client asks."""
        if request.names or any(one.staged is None for one in request.commits):
            return self._catalog.ledger.ratify(request)
        logs = {one.table_id: self._log(one.table_id) for one in request.commits}
        asked = [
            CommitRequest(
                logs[one.table_id], _told(logs[one.table_id], one.version, str(one.staged))
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
        match outcome.cause:
            case Overtaken():
                return HeadsMoved(heads=self._heads([*logs, *request.unchanged]))
            case Busy():
                return TurnTaken(transaction_id="another")
            case Refused(reason):
                raise Doubt(f"{outcome.table}: a sound commit was refused: {reason}")

    def _ratified(self) -> Ratified:
        """What the ledger says of it. Raises OutcomeUnknown where it can't be asked any more."""
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


def _told(log: TableLog, version: int, name: str) -> StagedFile:
    """What a client tells of its staged commit."""
    content = log.store.get(staged_path(name))
    infos = [one for one in decode_actions(content, file=name) if isinstance(one, CommitInfo)]
    time: Any = infos[0].in_commit_timestamp_ms
    return StagedFile(version=version, name=name, timestamp_ms=time, size_bytes=len(content))
