"""A transaction's entry in the catalog: others see it there, and it may hold locks."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Protocol

from txlake.catalog.admission import Admission, RequiredLocks, StatementTransaction
from txlake.catalog.lookup import LookupRequest
from txlake.conflict.levels import Level
from txlake.errors import TxlakeError
from txlake.session.engine import Engine

_logger = logging.getLogger(__name__)


class RegisteredTransaction(Protocol):
    """What the catalog's entry says of a transaction, and what it belongs to."""

    id: str
    engine: Engine
    level: Level | None
    read_only: bool
    explicit: bool

    @property
    def sequence(self) -> int | None:
        """The instant that the transaction reads; None until it uses a table of the lake."""

    @property
    def session_number(self) -> Callable[[], int]:
        """Returns the number of its session in the catalog."""


class Registration:
    """Makes, uses and ends the entry of one transaction.

    It doesn't keep the transaction alive: one that its owner drops without an end is abandoned.
    """

    def __init__(self, transaction: RegisteredTransaction) -> None:
        self._transaction = weakref.ref(transaction)
        self._catalog = transaction.engine.catalog
        self._is_made = False

    @property
    def is_made(self) -> bool:
        """Whether the catalog has the entry."""
        return self._is_made

    def announce(self) -> None:
        """Note the entry of a transaction that a user began.

        The catalog has it at the latest with the transaction's first lock.
        """
        transaction = self._owner()
        number = transaction.session_number()
        self._is_made = True  # an interrupt may come as soon as the catalog has it
        self._catalog.transactions.announce(
            transaction.id,
            number,
            isolation=_isolation(transaction),
            read_only=transaction.read_only,
            holder=transaction,
        )

    def make(self) -> None:
        """Write the entry into the catalog, unless it is there; an announced one is written now."""
        if self._is_made:
            self._catalog.transactions.register_announced()
            return
        transaction = self._owner()
        number = transaction.session_number()
        self._is_made = True  # an interrupt may come as soon as the catalog has it
        self._catalog.transactions.begin(
            transaction.id,
            number,
            isolation=_isolation(transaction),
            read_only=transaction.read_only,
            explicit=transaction.explicit,
            holder=transaction,
        )

    def admit(
        self, lookup: LookupRequest, locks: RequiredLocks, *, pins: bool, timeout_ms: int
    ) -> Admission:
        """Admit a statement of the transaction; the entry is made if the statement needs locks.

        Raises as `Admissions.admit`.
        """
        transaction = self._owner()
        statement = StatementTransaction(
            id=transaction.id,
            session_id=transaction.session_number(),
            is_new=not self._is_made,
            pins=pins,
            sequence=transaction.sequence,
            isolation=_isolation(transaction),
            read_only=transaction.read_only,
            explicit=transaction.explicit,
            holder=transaction,
        )
        self._is_made = True  # an interrupt may come as soon as the catalog has it
        admissions = self._catalog.of_lake().admissions
        admission = admissions.admit(statement, lookup, locks, timeout_ms=timeout_ms)
        self._is_made = admission.is_known
        return admission

    def instant(self) -> int:
        """Return the lake's newest instant.

        For a transaction that a user began it is recorded in the entry: VACUUM keeps its files.
        """
        transaction, catalog = self._owner(), self._catalog.of_lake()
        if self._is_made and transaction.explicit:
            return catalog.transactions.pin(transaction.id)
        return catalog.ledger.sequence()

    def show_level(self) -> None:
        """Update the isolation level in the catalog's entry, if there is one."""
        transaction = self._owner()
        if self._is_made and transaction.level is not None:
            self._catalog.transactions.set_isolation(transaction.id, transaction.level.value)

    def require_unkilled(self) -> None:
        """Raise Unavailable when a user's transaction was killed.

        For a commit without changes, which no ratification checks.
        """
        transaction = self._owner()
        if self._is_made and transaction.explicit:
            self._catalog.transactions.require_unkilled(transaction.id)

    def require_open(self) -> None:
        """Raise Unavailable if another session ended or killed the transaction.

        VACUUM may have removed its files then. For what no ratification checks: a path table's
        commit, and a file that is missing.
        """
        if self._is_made:
            self._catalog.transactions.require_open(self._owner().id)

    def set_ending_thread(self) -> None:
        """Record that only the calling thread ends the transaction.

        That thread gets a Deadlock at once where it would wait for the transaction's locks.
        """
        self._catalog.locks.set_ending_thread(self._owner().id)

    def forget(self) -> None:
        """Note that a ratification has ended the entry and its locks; the catalog isn't written."""
        self._is_made = False
        transaction = self._owner()
        self._catalog.transactions.forget(transaction.id)
        self._catalog.locks.forget_owner(transaction.id)

    def end(self) -> None:
        """End the entry and its locks.

        If the catalog can't be reached that is logged, and the entry ends later. Do nothing if
        there is no entry, if the lake is closed, which has ended it, and in a forked process, whose
        parent has the transaction.
        """
        transaction = self._owner()
        if not self._is_made or transaction.engine.is_closed or transaction.engine.is_forked:
            return
        self._catalog.transactions.abandon(transaction.id)  # holds even if the next lines fail
        try:
            self._catalog.transactions.end(transaction.id)
            self._catalog.locks.forget_owner(transaction.id)
        except TxlakeError as error:
            _logger.warning("transaction %s: its locks end later: %s", transaction.id, error)
        self._is_made = False

    def _owner(self) -> RegisteredTransaction:
        """Return the transaction, which must still be alive."""
        transaction = self._transaction()
        assert transaction is not None, "only the transaction itself uses its registration"
        return transaction


def _isolation(transaction: RegisteredTransaction) -> str | None:
    return None if transaction.level is None else transaction.level.value
