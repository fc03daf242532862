"""A lake in memory with branches, whose sessions answer plain queries without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.session.offline import Offline
from txlake.catalog.branch_rows import BranchEntry, BranchTable
from txlake.catalog.branches import Branches
from txlake.catalog.relations import branches
from txlake.commands import HANDLERS
from txlake.commit.table_log import Commit
from txlake.log.snapshot import Snapshot
from txlake.session.branches import explain_publish
from txlake.session.command import AsRows
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.session.views.describe import Rows
from txlake.sql import parse
from txlake.sql.statements import Select, TableName, TimeTravel

Row = tuple[object, ...]


class Lake(Offline):
    """A lake whose sessions answer plain queries without Spark."""

    def on(self, name: str, *, create: bool = True) -> Session:
        """A session on a branch."""
        session = Session(self.engine, HANDLERS)
        if create:
            self.do(f"CREATE BRANCH {name}", session)
        self.do(f"USE BRANCH {name}", session)
        return session

    def on_expired(self, name: str) -> Session:
        """A session that uses a branch that has expired since."""
        entry = self.catalog.branches.find(name)
        assert entry is not None
        return Session(self.engine.on_branch(entry), HANDLERS)

    def do(self, text: str, session: Session | None = None) -> None:
        """Statements as a session's user runs them."""
        used = session or self.session
        for statement in parse(text):
            used.perform(statement)

    def rows(self, text: str, session: Session | None = None) -> list[Row]:
        """The sorted rows of a query, or of a statement that has some."""
        [statement] = parse(text)
        if isinstance(statement, Select):
            statement = replace(statement, as_values=True)
        used = session or self.session
        rows = used.answer_in(used.current, statement)(AsRows())
        assert isinstance(rows, Rows)
        return sorted(rows.rows)

    def data_files(self, name: str, session: Session | None = None) -> set[str]:
        """The data files of a table's newest version."""
        engine: Engine = (session or self.session).engine
        entry = engine.catalog.find("default", name)
        assert entry is not None
        return paths_of(engine.at_entry(entry).log.latest())

    def begin_elsewhere(self) -> None:
        """A transaction of another session, which reads the newest instant and stays open."""
        self.elsewhere = Session(self.engine, HANDLERS)
        self.do("BEGIN", self.elsewhere)
        self.rows("SELECT * FROM u", self.elsewhere)

    def files_at(self, travel: TimeTravel, session: Session | None = None) -> set[str]:
        """The data files of a version of t."""
        return paths_of((session or self.session).snapshot(TableName(("t",)), travel))


def paths_of(snapshot: Snapshot) -> set[str]:
    return {add.path for add in snapshot.files.adds()}


def tables_of(lake: Lake, session: Session | None = None) -> list[object]:
    return [row[1] for row in lake.rows("SHOW TABLES", session)]


def vacuum_all(lake: Lake) -> None:
    lake.do("VACUUM t RETAIN 0 HOURS; VACUUM u RETAIN 0 HOURS")


def data_sizes(lake: Lake) -> dict[str, int]:
    """The sizes of all data files and deletion vectors of the lake."""
    store = lake.engine.warehouse
    assert store is not None
    found = {item.path: item.size_bytes for item in store.list("")}
    return {path: size for path, size in found.items() if "_delta_log" not in path}


def history(lake: Lake, name: str, first: int, session: Session | None = None) -> list[Commit]:
    """The commits of a table from a version on."""
    engine = (session or lake.session).engine
    entry = engine.catalog.find("default", name)
    assert entry is not None
    log = engine.at_entry(entry).log
    return list(log.commits(first - 1, log.latest().version))


def operations(commits: Sequence[Commit]) -> list[str | None]:
    return [None if one.info is None else one.info.text("operation") for one in commits]


def files_of(lake: Lake, version: int, session: Session | None = None) -> set[str]:
    """The data files of a version of t."""
    return lake.files_at(TimeTravel(version=version), session)


def explained(lake: Lake, name: str) -> dict[str, str]:
    """What EXPLAIN PUBLISH says stops each table, and a part of why."""
    return {
        one.name: "" if one.conflict is None else str(one.conflict)
        for one in explain_publish(lake.session, name)
    }


def end_time_of_branches(lake: Lake, *names: str) -> None:
    """Let branches and tags expire; without names all that have a time to."""
    ending = sa.update(branches).where(branches.c.kept_until_ms.is_not(None))
    if names:
        ending = sa.update(branches).where(branches.c.name.in_(names))
    change_rows(lake, ending.values(kept_until_ms=1_000))


def change_rows(lake: Lake, change: sa.Update) -> None:
    """Change rows of the catalog."""
    database = lake.catalog.branches._database
    database.run_shielded(
        lambda: database.write(lambda connection: connection.execute(change).close())
    )


def once_the_tables_are_known(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Do the work once, while a branch is published: after its tables were looked up."""
    tables = Branches.tables

    def and_work(self: Branches, entry: BranchEntry) -> list[BranchTable]:
        found = tables(self, entry)
        monkeypatch.undo()
        work()
        return found

    monkeypatch.setattr(Branches, "tables", and_work)
