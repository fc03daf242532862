"""What of a dbt command becomes visible together: each model, the whole build, or a branch.

A unit gives out connections of `txlake.dbapi`, runs statements, and ends with the command.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.txlake.credentials import TxlakeCredentials
from dbt_common.events.contextvars import get_node_info
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError
from dbt_common.invocation import get_invocation_id

import txlake.dbapi
from txlake.dbapi import Connection, Cursor, NotSupportedError
from txlake.errors import TxlakeError
from txlake.sql import parse
from txlake.sql.statements import (
    Begin,
    Commit,
    DropBranch,
    PublishBranch,
    RebaseBranch,
    Rollback,
    Statement,
    UseBranch,
)

_logger = AdapterLogger("txlake")
Values = Sequence[Any]
# Statements that would end a unit, or leave it, have one of these words.
_WORDS = re.compile(r"\b(begin|start|commit|rollback|abort|end|branch)\b", re.IGNORECASE)
_ENDING = (Begin, Commit, Rollback)
_LEAVING = (DropBranch, PublishBranch, RebaseBranch, UseBranch)


class Unit(Protocol):
    """What becomes visible together."""

    def take(self) -> Connection:
        """Return a connection for a thread."""

    def give_back(self, con: Connection) -> None:
        """Take back a connection; a model's own transaction is rolled back."""

    def begin(self, con: Connection) -> None:
        """Let the statements that follow be one transaction, until `commit` or `rollback`."""

    def commit(self, con: Connection) -> None:
        """Commit a model's transaction."""

    def rollback(self, con: Connection) -> None:
        """Roll back a model's transaction."""

    def run(
        self, con: Connection, sql: str, values: Values | None, *, many: bool = False
    ) -> Cursor:
        """Run a statement, with `many` once for each of the values, which are rows then."""

    def end(self, fault: str | None) -> None:
        """End the unit, and close its connections: it becomes visible unless there is a fault.

        Raises DbtRuntimeError if it should have become visible and couldn't.
        """


def unit_of(credentials: TxlakeCredentials, command: str | None) -> Unit:
    """Return the unit of a command, as the profile says; commands that build nothing have none.

    Raises DbtRuntimeError for `dbt retry` of a unit that is more than a model.
    """
    if credentials.unit == "model" or command not in _BUILDING:
        return ByModel(credentials)
    if command == "retry":
        raise DbtRuntimeError(
            f"dbt retry: with `unit: {credentials.unit}` nothing of a failed run is visible that "
            "it could go on from; run the whole command again"
        )
    return OneTransaction(credentials) if credentials.unit == "build" else OnBranch(credentials)


_BUILDING = frozenset({"build", "clone", "retry", "run", "seed", "snapshot"})


def connect(credentials: TxlakeCredentials) -> Connection:
    """Open a connection to the profile's lake, with autocommit. Raises PEP 249's errors."""
    given = credentials
    options: dict[str, Any] = {"token": given.token, "isolation": given.isolation}
    if given.warehouse.startswith("txlake+"):
        options["timeout_s"] = given.timeout_s
    if given.catalog is not None:
        options["catalog"] = given.catalog
    if given.storage_options:
        options["storage_options"] = given.storage_options
    return txlake.dbapi.connect(given.warehouse, autocommit=True, **options)


class ByModel:
    """Each model commits by itself. Connections are kept for the models to come."""

    def __init__(self, credentials: TxlakeCredentials) -> None:
        self._credentials = credentials
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    def take(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return connect(self._credentials)

    def give_back(self, con: Connection) -> None:
        self.rollback(con)
        with self._lock:
            self._idle.append(con)

    def begin(self, con: Connection) -> None:
        con.autocommit = False

    def commit(self, con: Connection) -> None:
        con.commit()
        con.autocommit = True

    def rollback(self, con: Connection) -> None:
        con.rollback()
        con.autocommit = True

    def run(
        self, con: Connection, sql: str, values: Values | None, *, many: bool = False
    ) -> Cursor:
        if _is_commit(_watched(sql)):
            con.commit()
            return con.cursor()
        try:
            return _run(con, sql, values, many=many)
        except NotSupportedError:
            # CREATE SCHEMA and VACUUM commit by themselves, which is right if nothing has begun.
            if con.autocommit or con.in_transaction:
                raise
        con.autocommit = True
        try:
            return _run(con, sql, values, many=many)
        finally:
            con.autocommit = False

    def end(self, fault: str | None) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()


class OneTransaction:
    """The whole build is one transaction, on one connection, which all threads share.

    It begins with the first statement of a node or hook; dbt looks around before.
    """

    def __init__(self, credentials: TxlakeCredentials) -> None:
        self._credentials = credentials
        self._con: Connection | None = None
        self._failure: str | None = None
        self._lock = threading.RLock()

    def take(self) -> Connection:
        with self._lock:
            if self._con is None:
                self._con = connect(self._credentials)
            return self._con

    def give_back(self, con: Connection) -> None:
        """Keep it: other threads use it."""

    def begin(self, con: Connection) -> None:
        """Do nothing: the build's transaction is begun by the first statement."""

    def commit(self, con: Connection) -> None:
        """Do nothing: the build commits at its end."""

    def rollback(self, con: Connection) -> None:
        """Do nothing: a node that failed lets the build fail."""

    def run(
        self, con: Connection, sql: str, values: Values | None, *, many: bool = False
    ) -> Cursor:
        statements = _watched(sql)
        if _is_commit(statements):
            return con.cursor()  # dbt's own, in front of hooks outside of a transaction
        _refuse(statements, _ENDING + _LEAVING, "unit: build")
        with self._lock:
            if self._failure is not None:
                raise DbtDatabaseError(
                    f"not run: the build is one transaction, and was rolled back: {self._failure}"
                )
            if get_node_info() and con.autocommit:
                con.autocommit = False
            try:
                return _run(con, sql, values, many=many)
            except NotSupportedError as error:
                self._fail(con, error)
                raise DbtDatabaseError(
                    f"{error}\nThe profile says `unit: build`, one transaction, which that can't "
                    "be part of: leave it out, or use `unit: branch`"
                ) from error
            except BaseException as error:
                self._fail(con, error)
                raise

    def _fail(self, con: Connection, error: BaseException) -> None:
        """Roll back the transaction, if it has begun, so that nothing else runs in the build."""
        if not con.autocommit:
            node = get_node_info().get("unique_id") or "a hook"
            self._failure = f"{node}: {error}"
            con.rollback()

    def end(self, fault: str | None) -> None:
        with self._lock:
            con, self._con = self._con, None
            if con is None:
                return
            began, fault = con.in_transaction, self._failure or fault
            try:
                if fault is not None:
                    con.rollback()
                    if began or self._failure:
                        _logger.warning(f"rolled back: nothing of this run is visible ({fault})")
                elif began:
                    con.commit()
                    _logger.info("committed: this run was one transaction")
            except txlake.dbapi.Error as error:
                raise DbtRuntimeError(
                    f"the run is one transaction, and wasn't committed: {error}"
                ) from error
            finally:
                con.close()


class OnBranch(ByModel):
    """The build works on a branch, which is published if everything passed. There each model
    commits by itself.
    """

    def __init__(self, credentials: TxlakeCredentials) -> None:
        super().__init__(credentials)
        self.branch = f"dbt-{get_invocation_id()}"
        self._is_created = False
        self._creation = threading.Lock()

    def take(self) -> Connection:
        con = super().take()
        try:
            with self._creation:
                if not self._is_created:
                    retention = self._credentials.branch_retention
                    con.execute(f"CREATE BRANCH `{self.branch}` RETAIN {retention}")
                    self._is_created = True
                    _logger.info(f"works on branch {self.branch}")
            con.execute(f"USE BRANCH `{self.branch}`")
        except BaseException:
            con.close()
            raise
        return con

    def run(
        self, con: Connection, sql: str, values: Values | None, *, many: bool = False
    ) -> Cursor:
        _refuse(_watched(sql), _LEAVING, "unit: branch")
        return super().run(con, sql, values, many=many)

    def end(self, fault: str | None) -> None:
        super().end(fault)
        if not self._is_created:
            return
        self._is_created = False
        with connect(self._credentials) as con:
            if fault is None:
                self._publish(con)
            elif self._credentials.failed_branch == "drop":
                con.execute(f"DROP BRANCH `{self.branch}`")
                _logger.warning(f"not published, and dropped: branch {self.branch} ({fault})")
            else:
                _logger.warning(
                    f"not published: branch {self.branch}, which is kept for "
                    f"{self._credentials.branch_retention} ({fault})"
                )

    def _publish(self, con: Connection) -> None:
        try:
            con.execute(f"PUBLISH BRANCH `{self.branch}`")
        except txlake.dbapi.Error as error:
            raise DbtRuntimeError(
                f"everything passed, but branch {self.branch} wasn't published, and is kept for "
                f"{self._credentials.branch_retention}: {error}"
            ) from error
        _logger.info(f"published: branch {self.branch}")


def _run(con: Connection, sql: str, values: Values | None, *, many: bool) -> Cursor:
    cursor = con.cursor()
    return cursor.executemany(sql, values or ()) if many else cursor.execute(sql, values)


def _watched(sql: str) -> Sequence[Statement]:
    """Return the statements of a script that may end a unit; of another one none."""
    if _WORDS.search(sql) is None:
        return ()
    try:
        return parse(sql, None)
    except TxlakeError:
        return ()  # the lake says what is wrong


def _is_commit(statements: Sequence[Statement]) -> bool:
    return len(statements) == 1 and isinstance(statements[0], Commit)


def _refuse(statements: Sequence[Statement], kinds: tuple[type[Statement], ...], unit: str) -> None:
    """Raise DbtDatabaseError for statements that would end the unit, or leave it."""
    for statement in statements:
        if isinstance(statement, kinds):
            raise DbtDatabaseError(
                f"{type(statement).__name__} can't be run here: the profile says `{unit}`, which "
                "begins and ends with the dbt command"
            )
