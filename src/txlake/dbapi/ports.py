"""What a connection needs of a lake, in this process or behind a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from txlake.dbapi.fetching import ResultSet
from txlake.sql.markers import Arguments
from txlake.sql.statements import Statement


class Backend(Protocol):
    """One session of a lake. Its methods raise txlake's errors."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also one that failed."""

    @property
    def isolation(self) -> str | None:
        """The level of transactions to come; None for the lake's own."""

    def set_isolation(self, level: str | None) -> None:
        """Set the level of transactions to come."""

    def parsed(self, text: str, args: Arguments | None) -> Sequence[Statement] | None:
        """Return the statements of a text; None where only the lake itself can parse it.

        A text that can't be parsed fails the open transaction.
        """

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit the open transaction, which ends in any case."""

    def rollback(self) -> None:
        """Roll back the open transaction."""

    def run(
        self, text: str, args: Arguments | None, statements: Sequence[Statement] | None = None
    ) -> ResultSet:
        """Run a script, and return the last statement's result.

        `statements`: what `parsed` returned for it.
        """

    def close(self) -> None:
        """Roll back the open transaction, and end the session."""
