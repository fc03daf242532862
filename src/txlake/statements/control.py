"""Statements that steer transactions, as T-SQL, PostgreSQL, Redshift and Databricks write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txlake.statements.expressions import SqlText
from txlake.statements.inspection import Isolation
from txlake.statements.names import Table

if TYPE_CHECKING:
    from txlake.statements.scripting import Handler, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """BEGIN [TRAN[SACTION] | WORK], START TRANSACTION.

    Attributes:
        isolation: None when none is said, or READ COMMITTED and its like, which change nothing.
    """

    isolation: Isolation | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT, END."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """ROLLBACK [TRAN[SACTION] | WORK], ABORT."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """SAVEPOINT name, SAVE TRAN[SACTION] name."""

    name: str


@dataclass(frozen=True, slots=True)
class RollbackTo:
    """ROLLBACK TO [SAVEPOINT] name, ROLLBACK TRAN[SACTION] name."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint:
    """RELEASE [SAVEPOINT] name."""

    name: str


@dataclass(frozen=True, slots=True)
class SetIsolation:
    """SET TRANSACTION ISOLATION LEVEL; `level` is None where `said` leaves it as it is."""

    level: Isolation | None
    said: str


@dataclass(frozen=True, slots=True)
class ShowIsolation:
    """SHOW transaction_isolation, SHOW TRANSACTION ISOLATION LEVEL."""


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL session: ends what another session has open."""

    session_id: int


@dataclass(frozen=True, slots=True)
class SetLockTimeout:
    """SET LOCK_TIMEOUT, milliseconds; -1 waits without end."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SetXactAbort:
    """SET XACT_ABORT { ON | OFF }."""

    on: bool


@dataclass(frozen=True, slots=True)
class LockTable:
    """LOCK [TABLE] t [, ...]; `mode` as it was said, None when it wasn't."""

    tables: tuple[Table, ...]
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Atomic:
    """BEGIN ATOMIC ... END: all of the steps or none; no transaction statements inside.

    Attributes:
        handlers: what is done when one of the steps fails.
    """

    statements: tuple[Step, ...]
    handlers: tuple[Handler, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteImmediate:
    """EXECUTE IMMEDIATE sql [INTO variables] [USING values].

    Attributes:
        sql: a query of one value: the text of the statement.
        into: variables that get the columns of its one row.
        using: values of its markers, with the names that `AS` gave them.
    """

    sql: SqlText
    into: tuple[str, ...] = ()
    using: tuple[tuple[SqlText, str | None], ...] = ()


ControlStatement = (
    Begin
    | Commit
    | Rollback
    | Savepoint
    | RollbackTo
    | ReleaseSavepoint
    | SetIsolation
    | ShowIsolation
    | Kill
    | SetLockTimeout
    | SetXactAbort
    | LockTable
    | Atomic
    | ExecuteImmediate
)
