"""A transaction's entry in the catalog: others see it there, and it may hold locks."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Protocol

from txlake.catalog.admission import Admission, RequiredLocks, StatementTransaction
from txlake.catalog.lookup import LookupRequest
from txlake.conflict.levels import Level
from txlake.errors import Conflict, TxlakeError
from txlake.session.deferral import Deferral, must_repeat
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
        self.deferral = Deferral.NONE
        self._was_deferred = False

    @property
    def is_made(self) -> bool:
        """Whether the catalog has the entry."""
        return self._is_made

    @property
    def is_deferred(self) -> bool:
        """Whether the transaction writes without an entry, which its commit needn't make."""
        return self._was_deferred and self._catalog.of_lake().unregistered.has(self._owner().id)

    @property
    def may_defer(self) -> bool:
        """Whether the next statement may do without an entry: none was made, and the catalog is in
        a store.
        """
        transaction = self._owner()
        if not self._catalog.is_lake or not self._catalog.of_lake().defers_registration:
            return False
        if transaction.explicit:
            return self._catalog.of_lake().transactions.is_announced(transaction.id)
        return self.deferral is not Deferral.NONE and not self._is_made

    def repeats_after(self, conflict: Conflict) -> bool:
        """Return whether a conflict makes the deferred statement run again."""
        return must_repeat(conflict, self.deferral)

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
        self._end_deferral()
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

    def defer(self, lookup: LookupRequest, locks: RequiredLocks) -> Admission:
        """Admit a statement without an entry, if its locks are free. Raises as
        `Admissions.admit_unregistered`.
        """
        statement = self._statement(pins=True)
        admission = self._catalog.of_lake().admissions.admit_unregistered(
            statement, lookup, locks, looks=self.deferral is not Deferral.UNTIL_COMMIT_UNSEEN
        )
        self._was_deferred = self._was_deferred or admission.is_granted
        return admission

    def admit(
        self, lookup: LookupRequest, locks: RequiredLocks, *, pins: bool, timeout_ms: int
    ) -> Admission:
        """Admit a statement of the transaction; the entry is made if the statement needs locks.

        Raises as `Admissions.admit`.
        """
        self._end_deferral()
        statement = self._statement(pins=pins)
        self._is_made = True  # an interrupt may come as soon as the catalog has it
        admissions = self._catalog.of_lake().admissions
        admission = admissions.admit(statement, lookup, locks, timeout_ms=timeout_ms)
        self._is_made = admission.is_known
        return admission

    def _statement(self, *, pins: bool) -> StatementTransaction:
        """Return what the catalog is told of the transaction. `pins`: as there."""
        transaction = self._owner()
        return StatementTransaction(
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

    def instant(self) -> int:
        """Return the lake's newest instant.

        For a transaction that a user began it is recorded in the entry: VACUUM keeps its files.
        """
        transaction, catalog = self._owner(), self._catalog.of_lake()
        if self._is_made and transaction.explicit and not self.is_deferred:
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
        if self._was_deferred:
            self._catalog.of_lake().unregistered.require_undisturbed(self._owner().id)

    def set_ending_thread(self) -> None:
        """Record that only the calling thread ends the transaction.

        That thread gets a Deadlock at once where it would wait for the transaction's locks.
        """
        self._catalog.locks.set_ending_thread(self._owner().id)

    def forget(self) -> None:
        """Note that a ratification has ended the entry and its locks; the catalog isn't written."""
        self._is_made = False
        transaction = self._owner()
        self._forget_deferral()
        self._catalog.transactions.forget(transaction.id)
        self._catalog.locks.forget_owner(transaction.id)

    def end(self) -> None:
        """End the entry and its locks.

        If the catalog can't be reached that is logged, and the entry ends later. Do nothing if
        there is no entry, if the lake is closed, which has ended it, and in a forked process, whose
        parent has the transaction.
        """
        transaction = self._owner()
        self._is_made = self._forget_deferral() or self._is_made
        if not self._is_made or transaction.engine.is_closed or transaction.engine.is_forked:
            return
        self._catalog.transactions.abandon(transaction.id)  # holds even if the next lines fail
        try:
            self._catalog.transactions.end(transaction.id)
            self._catalog.locks.forget_owner(transaction.id)
        except TxlakeError as error:
            _logger.warning("transaction %s: its locks end later: %s", transaction.id, error)
        self._is_made = False

    def _end_deferral(self) -> None:
        """Make the entry of a transaction that was deferred. Raises AdmissionOutdated."""
        if self._was_deferred:
            self._catalog.of_lake().unregistered.require_registered(self._owner().id)
            self._was_deferred = False
            self._is_made = True

    def _forget_deferral(self) -> bool:
        """End the deferral; return whether the catalog has the entry all the same."""
        if not self._was_deferred:
            return False
        self._was_deferred = False
        return self._catalog.of_lake().unregistered.forget(self._owner().id)

    def _owner(self) -> RegisteredTransaction:
        """Return the transaction, which must still be alive."""
        transaction = self._transaction()
        assert transaction is not None, "only the transaction itself uses its registration"
        return transaction


def _isolation(transaction: RegisteredTransaction) -> str | None:
    return None if transaction.level is None else transaction.level.value
