"""The turns that a session takes after a conflict, so that transactions that lost in the same way
don't meet again.

A turn is a lock that only sessions request that lost a transaction: the next ones that begin with
the same statement, and lost on the same table because of the same condition, run one after the
other. Whoever hasn't lost requests no turn, and waits for nobody. A turn is a courtesy: who waits
too long for it goes on without. Source: docs/internals/catalog.md, "Turns after a conflict".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Protocol

from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import Conflict
from txlake.session.engine import Handle
from txlake.sql.statements import Statement

TURN_WAIT_MS_MAX = 1_000
# How many transactions that begin with the same statement take turns after a conflict.
_TRANSACTIONS = 16
_STATEMENTS_MAX = 8
_TURNS_MAX = 4
# As SQL Server shows the hash of a key.
_DIGEST_BYTES = 6


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a transaction's first statement.

    Attributes:
        locks: what is requested before all other locks.
        give_up: is called if they weren't granted in time: the session's next transactions that
            begin with this statement don't request them.
    """

    locks: tuple[LockRequest, ...] = ()
    give_up: Callable[[], None] = _nothing


NO_TURNS = Turns()


class BegunTransaction(Protocol):
    """What turns depend on of a transaction."""

    explicit: bool
    read_only: bool
    first_statement: Statement | None

    @property
    def sequence(self) -> int | None:
        """The instant that it reads; None until it uses a table of the lake."""

    @property
    def tables(self) -> Iterable[tuple[Handle, TableTransaction]]:
        """The tables that it has opened."""


@dataclass(slots=True)
class _Contested:
    """The turns of the next `left` transactions that begin with a statement."""

    turns: tuple[LockRequest, ...]
    left: int = _TRANSACTIONS


class ConflictTurns:
    """The turns of one session."""

    def __init__(self) -> None:
        # By the digest of the first statement, the newest conflict last.
        self._contested: dict[str, _Contested] = {}

    def begin(self, transaction: BegunTransaction | None, statement: Statement) -> Turns:
        """Return the turns to take before a statement: those of a transaction's first statement, in
        an order that is the same in all sessions.

        A read-only transaction takes none, and neither does a statement in its own transaction.
        """
        if transaction is None or transaction.read_only or not transaction.explicit:
            return NO_TURNS
        if transaction.first_statement is not None or transaction.sequence is not None:
            return NO_TURNS
        transaction.first_statement = statement
        first = _digest(_text(statement)) if self._contested else ""
        contested = self._contested.get(first)
        if contested is None:
            return NO_TURNS

        def give_up() -> None:
            """Forget the conflicts, until the next one."""
            self._contested.pop(first, None)

        contested.left -= 1
        if contested.left <= 0:
            give_up()
        return Turns(contested.turns, give_up)

    def note_conflict(self, transaction: BegunTransaction, conflict: Conflict) -> None:
        """Make the next transactions that begin as this one take turns, if it lost to another
        commit of a lake's table and may be run again.
        """
        evidence, statement = conflict.evidence, transaction.first_statement
        if evidence is None or statement is None:
            return
        if not evidence.retry or evidence.winning_version < 0:
            return
        for handle, _ in transaction.tables:
            if handle.name == evidence.table and handle.entry is not None:
                first = _digest(_text(statement))
                what = _digest(f"{first} {evidence.predicate}")
                resource = Resource(
                    type=ResourceType.APPLICATION,
                    database=handle.entry.database_number,
                    entity=handle.entry.number,
                    description=f"retry {what}",
                )
                self._add(first, LockRequest(resource=resource, mode=LockMode.X))

    def _add(self, first: str, turn: LockRequest) -> None:
        known = self._contested.pop(first, None)
        turns = {turn} if known is None or len(known.turns) >= _TURNS_MAX else {turn, *known.turns}
        self._contested[first] = _Contested(tuple(sorted(turns, key=_order)))
        while len(self._contested) > _STATEMENTS_MAX:
            del self._contested[next(iter(self._contested))]


def _order(turn: LockRequest) -> tuple[int, str]:
    return (turn.resource.entity, turn.resource.description)


def _text(value: object) -> str:
    """Return a text that is the same, in each process, for equal statements.

    Of what isn't text, number or syntax, such as a DataFrame, it has the type alone.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if is_dataclass(value):
        parts = (f"{one.name}={_text(getattr(value, one.name))}" for one in fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    is_plain = value is None or isinstance(value, str | bytes | int | float | Enum)
    return repr(value) if is_plain else type(value).__name__


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
