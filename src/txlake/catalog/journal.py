"""The conflict journal: the losing transactions, their winners and the reasons; the newest 1000."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.database import Database
from txlake.catalog.relations import conflicts, sessions, transactions
from txlake.catalog.shielding import shielded
from txlake.errors import Conflict, Evidence, TxlakeError

CONFLICTS_MAX = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictEntry:
    """A conflict that ended a transaction.

    Attributes:
        transaction_number, begin_ms, process: None if the transaction's row was gone already.
        error: the name of its class in `errors`.
    """

    id: int
    time_ms: int
    transaction_id: str
    transaction_number: int | None
    begin_ms: int | None
    session_id: int | None
    process: int | None
    error: str
    message: str
    evidence: Evidence | None


@shielded()
class Journal:
    """The conflicts of one lake, of all processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, transaction_id: str, session_id: int | None, conflict: Conflict) -> None:
        """Record a conflict; log if that fails, as the caller raises the conflict itself."""
        evidence = (
            None
            if conflict.evidence is None
            else json.dumps(asdict(conflict.evidence), default=str)
        )

        def work(connection: Connection) -> None:
            about = (
                sa.select(transactions.c.number, transactions.c.begin_ms, sessions.c.process)
                .join_from(transactions, sessions)
                .where(transactions.c.id == transaction_id)
            )
            number, begin_ms, process = connection.execute(about).first() or (None,) * 3
            noted = sa.insert(conflicts).values(
                time_ms=self._database.now(),
                transaction_id=transaction_id,
                transaction_number=number,
                begin_ms=begin_ms,
                session_id=session_id,
                process=process,
                error=type(conflict).__name__,
                message=str(conflict),
                evidence=evidence,
            )
            newest = connection.execute(noted.returning(conflicts.c.id)).scalar_one()
            too_old = conflicts.c.id <= newest - CONFLICTS_MAX
            connection.execute(sa.delete(conflicts).where(too_old))

        try:
            self._database.write_relaxed(work)
        except TxlakeError as error:
            _log.warning("the conflict of transaction %s isn't recorded: %s", transaction_id, error)

    def conflicts(self, limit: int = 1_000) -> list[ConflictEntry]:
        """Return the newest conflicts, newest first. Rows of the evidence hold JSON values."""
        query = sa.select(conflicts).order_by(conflicts.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            return [_entry(row._mapping) for row in connection.execute(query)]

    def conflict(self, number: int) -> ConflictEntry | None:
        """Return the conflict with that id; None if it isn't in the journal."""
        query = sa.select(conflicts).where(conflicts.c.id == number)
        with self._database.reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else _entry(row._mapping)


def _entry(row: Mapping[Any, Any]) -> ConflictEntry:
    return ConflictEntry(**{**row, "evidence": _evidence(row["evidence"])})


def _evidence(text: str | None) -> Evidence | None:
    """Return the evidence that was stored as JSON; None if there is none."""
    if text is None:
        return None
    facts = json.loads(text)
    return Evidence(**{**facts, "files": tuple(facts["files"]), "rows": tuple(facts["rows"])})
