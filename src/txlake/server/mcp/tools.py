"""What agents may do with a lake: each tool is one statement of served SQL.

Owns which statements a tool takes, the branch on which it runs, and how much it returns. What
served SQL refuses is refused here too: `served_sql` runs each statement.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from txlake.commands import COMMANDS
from txlake.errors import TxlakeError
from txlake.server import served_sql
from txlake.server.api_errors import ApiError, api_error_of
from txlake.server.calls import Call, ServedLake
from txlake.server.refusals import READ_STATEMENTS, WRITE_STATEMENTS
from txlake.server.tokens import Caller
from txlake.session.command import words_of
from txlake.session.session import Session
from txlake.sql import parse
from txlake.sql.statements import (
    CreateBranch,
    DescribeBranch,
    DescribeHistory,
    DescribeTable,
    DropBranch,
    ExplainConflicts,
    ExplainPublish,
    PublishBranch,
    ShowBranches,
    ShowDatabases,
    ShowIsolation,
    ShowProperties,
    ShowTables,
    ShowTags,
    ShowViews,
    UseBranch,
    UseDatabase,
)
from txlake.sql.statements.names import quoted

_LOOKS = {DescribeBranch, ShowBranches, ShowTags, ShowIsolation}
QUERIES = frozenset((READ_STATEMENTS & (COMMANDS.keys() | _LOOKS)) - {UseDatabase})
"""The types of statements of the tool that reads; none of them changes its session."""
WRITES = frozenset(WRITE_STATEMENTS & COMMANDS.keys())
"""The types of statements of the tool that writes on a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """The limits of the tools.

    Attributes:
        rows_max: rows that a tool returns.
        bytes_max: bytes of a tool's rows, as JSON.
        may_publish: whether agents may publish branches of their own.
    """

    rows_max: int = 100
    bytes_max: int = 100_000
    may_publish: bool = False


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a statement. `total`: how many there are; `note` says so if not all are here."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    total: int
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableName:
    """A table or view of the lake, as SQL names it."""

    name: str
    is_view: bool


@dataclass(frozen=True, kw_only=True)
class TableDescription:
    """A table's columns, in order, and its properties."""

    columns: list[dict[str, Any]]
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A statement's result, and what the branch has changed since it was created."""

    result: Rows
    changes: Rows


@dataclass(frozen=True, kw_only=True)
class BranchDescription:
    """What a branch has changed, and what publishing it would meet; None for somebody else's."""

    changes: Rows
    publication: Rows | None


class LakeTools:
    """The tools. Each call has a session of its own, so that nothing is left by one for the next.

    Every tool raises ApiError, with a message for the agent: a statement that the tool doesn't
    take or the lake's server doesn't serve, and each error of txlake.
    """

    def __init__(self, served_lake: ServedLake, settings: ToolSettings) -> None:
        limits = replace(served_lake.limits, sql_rows_max=settings.rows_max)
        self._served_lake = replace(served_lake, limits=limits)
        self._settings = settings

    def close(self) -> None:
        """End the running calls' sessions."""
        self._served_lake.close()

    # Reading

    def list_tables(self, caller: Caller, branch: str | None = None) -> list[TableName]:
        """Return the lake's tables and views, of all databases."""
        found = []
        for (database,) in self._read_all(caller, "SHOW DATABASES", ShowDatabases, branch):
            for words, kind in (("TABLES", ShowTables), ("VIEWS", ShowViews)):
                text = f"SHOW {words} IN {quoted(database)}"
                found += [
                    TableName(
                        name=f"{quoted(database)}.{quoted(row[1])}", is_view=kind is ShowViews
                    )
                    for row in self._read_all(caller, text, kind, branch)
                ]
        return found

    def describe_table(
        self, caller: Caller, table: str, branch: str | None = None
    ) -> TableDescription:
        """Return the columns of a table or view, and a table's properties."""
        text = f"DESCRIBE TABLE EXTENDED {table}"
        described = list(self._read_all(caller, text, DescribeTable, branch))
        columns = [
            {"name": name, "type": kind, "comment": comment}
            for name, kind, comment in itertools.takewhile(_is_column, described)
        ]
        if any(row[0] == "View Text" for row in described[len(columns) :]):
            return TableDescription(columns=columns)
        text = f"SHOW TBLPROPERTIES {table}"
        properties = dict(self._read_all(caller, text, ShowProperties, branch))
        return TableDescription(columns=columns, properties=properties)

    def history(
        self, caller: Caller, table: str, limit: int = 20, branch: str | None = None
    ) -> Rows:
        """Return a table's commits, newest first."""
        text = f"DESCRIBE HISTORY {table} LIMIT {limit:d}"
        return self._run(_reader(caller), text, {DescribeHistory}, branch)

    def query(
        self, caller: Caller, sql: str, branch: str | None = None, database: str | None = None
    ) -> Rows:
        """Return the rows of one statement that changes nothing, on a branch or on main."""
        return self._run(_reader(caller), sql, QUERIES, branch, database)

    def explain_conflicts(self, caller: Caller, sql: str, branch: str | None = None) -> Rows:
        """Return which concurrent writers would abort a statement, which isn't run."""
        text = f"EXPLAIN CONFLICTS {sql}"
        return self._run(_worker(caller), text, {ExplainConflicts}, branch)

    def list_branches(self, caller: Caller) -> Rows:
        """Return the lake's branches."""
        return self._run(_reader(caller), "SHOW BRANCHES", {ShowBranches})

    def describe_branch(self, caller: Caller, branch: str) -> BranchDescription:
        """Return what a branch has changed, and what publishing it would meet."""
        changes = self._changes(caller, branch)
        publication = None
        if self._owns(caller, branch):
            text = f"EXPLAIN PUBLISH BRANCH {quoted(branch, always=True)}"
            publication = self._run(_worker(caller), text, {ExplainPublish})
        return BranchDescription(changes=changes, publication=publication)

    # Writing

    def create_branch(self, caller: Caller, branch: str, keep_days: int = 7) -> Rows:
        """Create a branch of main that ends after so many days, and return the lake's branches."""
        name = quoted(branch, always=True)
        text = f"CREATE BRANCH {name} FROM BRANCH main RETAIN {keep_days:d} DAYS"
        self._run(_worker(caller), text, {CreateBranch})
        return self.list_branches(caller)

    def write(self, caller: Caller, branch: str, sql: str, database: str | None = None) -> Written:
        """Run one statement that changes the lake, on a branch of the caller's."""
        result = self._run(_worker(caller), sql, WRITES, branch, database)
        return Written(result=result, changes=self._changes(caller, branch))

    def drop_branch(self, caller: Caller, branch: str) -> Rows:
        """Drop a branch of the caller's, and return the lake's branches."""
        text = f"DROP BRANCH {quoted(branch, always=True)}"
        self._run(_worker(caller), text, {DropBranch})
        return self.list_branches(caller)

    def publish_branch(self, caller: Caller, branch: str) -> Rows:
        """Publish a branch of the caller's: its changes become main's, all or none.

        Refused unless the server allows it, to a token that doesn't write on main, and for a branch
        of somebody else.
        """
        if not self._settings.may_publish:
            raise ApiError(
                "PermissionDeniedException",
                "agents publish nothing here: ask the lake's owner to review the branch, and to "
                "PUBLISH BRANCH; the server may allow it by --allow-publish",
            )
        if caller.read_only:
            raise ApiError(
                "PermissionDeniedException", f"{caller.name!r} may not change main: its token"
            )
        if not self._owns(caller, branch):
            raise ApiError(
                "PermissionDeniedException",
                f"{branch!r} is no branch of {caller.name!r}, which publishes its own only",
            )
        text = f"PUBLISH BRANCH {quoted(branch, always=True)}"
        return self._run(caller, text, {PublishBranch})

    def _changes(self, caller: Caller, branch: str) -> Rows:
        text = f"DESCRIBE BRANCH {quoted(branch, always=True)}"
        return self._run(_reader(caller), text, {DescribeBranch})

    def _owns(self, caller: Caller, branch: str) -> bool:
        """Return whether the caller has created the branch."""
        with _as_api_errors():
            entry = self._served_lake.engine.catalog.of_lake().branches.find(branch)
        return entry is not None and not entry.is_tag and entry.user_name == caller.user_name

    # Running

    def _read_all(
        self, caller: Caller, text: str, kind: type, branch: str | None
    ) -> Iterator[list[Any]]:
        """Yield all rows of a statement of one type. Raises ApiError if they are too many."""
        found = self._run(_reader(caller), text, {kind}, branch)
        if found.note is not None:
            raise ApiError("ResourceExhaustedException", f"{text}: {found.note}")
        yield from found.rows

    def _run(
        self,
        caller: Caller,
        text: str,
        kinds: Collection[type],
        branch: str | None = None,
        database: str | None = None,
    ) -> Rows:
        """Run one statement of these types, in a session of its own, as served SQL does."""
        self._require_one(text, kinds)

        def prepare(session: Session) -> None:
            session.lock_timeout_ms = self._served_lake.limits.sql_lock_ms
            if branch is not None:
                session.perform(UseBranch(branch))
            if database is not None:
                session.perform(UseDatabase(database))

        sessions = self._served_lake.client_sessions
        with _as_api_errors():
            session_id = sessions.begin(caller, prepare)
        try:
            content = msgspec.json.encode({"statement": text, "session": session_id})
            with self._served_lake.sessions.borrow() as session:
                response = served_sql.run(
                    Call(
                        served_lake=self._served_lake,
                        session=session,
                        caller=caller,
                        content=content,
                    )
                )
        finally:
            sessions.end(session_id, caller)
        assert isinstance(response.body, dict)
        return self._limited(response.body)

    def _require_one(self, text: str, kinds: Collection[type]) -> None:
        """Raise ApiError unless the text is one statement of these types."""
        with _as_api_errors():
            statements = parse(text, None, self._served_lake.engine.plane.text_rules)
        if len(statements) != 1:
            raise ApiError(
                "InvalidParameterValueException",
                f"a tool takes one statement, and found {len(statements)}",
            )
        if type(statements[0]) not in kinds:
            raise ApiError(
                "PermissionDeniedException",
                f"this tool doesn't take {words_of(statements[0])}; queries are for query, "
                "changes for write, and branches have tools of their own",
            )

    def _limited(self, found: dict[str, Any]) -> Rows:
        """Return the rows that fit into the limits, and say so if some don't."""
        rows, size = [], 0
        for row in found["rows"]:
            size += len(msgspec.json.encode(row))
            if size > self._settings.bytes_max:
                break
            rows.append(row)
        total, note = found["total"], None
        if len(rows) < total:
            note = (
                f"these are {len(rows)} of {total} rows: a tool returns at most "
                f"{self._settings.rows_max} rows and {self._settings.bytes_max} bytes; narrow the "
                "query"
            )
        return Rows(
            columns=[column["name"] for column in found["columns"]],
            types=[column["type"] for column in found["columns"]],
            rows=rows,
            total=total,
            note=note,
        )


def _is_column(described: Sequence[Any]) -> bool:
    """Return whether a row of DESCRIBE TABLE is a column's; those come first."""
    return bool(described[1])


def _reader(caller: Caller) -> Caller:
    """Return the caller as one who only reads."""
    return Caller(caller.name, read_only=True)


def _worker(caller: Caller) -> Caller:
    """Return the caller as one who writes on branches of his own; a reader stays one."""
    if caller.read_only and not caller.branches:
        return caller
    return Caller(caller.name, read_only=True, branches=True)


@contextmanager
def _as_api_errors() -> Iterator[None]:
    """Raise txlake's errors as ApiErrors."""
    try:
        yield
    except TxlakeError as error:
        raise api_error_of(error) from error
