"""Transaction control statements of T-SQL, PostgreSQL, Redshift and Databricks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txlake.sql.statements.expressions import SqlText
from txlake.sql.statements.inspection import Isolation
from txlake.sql.statements.names import Table

if TYPE_CHECKING:
    from txlake.sql.statements.scripting import Handler, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """BEGIN [TRAN[SACTION] | WORK], START TRANSACTION.

    Attributes:
        isolation: None without a level, and for READ COMMITTED and weaker, which change nothing.
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
    """SET TRANSACTION ISOLATION LEVEL.

    `level` is None where `spelling` (READ COMMITTED, ...) changes nothing.
    """

    level: Isolation | None
    spelling: str


@dataclass(frozen=True, slots=True)
class ShowIsolation:
    """SHOW transaction_isolation, SHOW TRANSACTION ISOLATION LEVEL."""


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL session: ends another session's open transaction."""

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
    """LOCK [TABLE] t [, ...]; `mode` as written, None without IN ... MODE."""

    tables: tuple[Table, ...]
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Atomic:
    """BEGIN ATOMIC ... END: all of the steps or none; no transaction statements inside.

    Attributes:
        handlers: run when one of the steps fails.
    """

    statements: tuple[Step, ...]
    handlers: tuple[Handler, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteImmediate:
    """EXECUTE IMMEDIATE sql [INTO variables] [USING values].

    Attributes:
        sql: a query of one value, the statement's text.
        into: variables for the columns of the statement's one row.
        using: values for the statement's markers, with their names from `AS`.
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
