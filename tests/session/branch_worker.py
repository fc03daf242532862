"""A process that works on the main of a lake and on its branches until it is killed.

It tells what it was told to be done, a line each, in a file that processes share. Rows come in
pairs, one in each table, and name the transaction that inserted them. Names of branches are never
used again.
"""

from __future__ import annotations

import random
import uuid

from tests.session.offline import Offline
from tests.support.killing import work_until_killed
from txlake.catalog import Catalog
from txlake.commands import HANDLERS
from txlake.errors import TxlakeError
from txlake.session.branches import drop_expired
from txlake.session.membership.opening import open_lake
from txlake.session.session import Session
from txlake.sql import parse
from txlake.system import System

TABLES = ("debit", "credit")
ACCOUNTS = 20
_LEASE_MS = 2_000
_ACTIONS = {"main": 3, "create": 3, "commit": 10, "publish": 4, "rebase": 4, "drop": 1}


class Worker:
    """One process's lake and its session on main."""

    def __init__(self, place: str, catalog: str) -> None:
        self.lake = Offline(place, Catalog(catalog, System(), lease_ms=_LEASE_MS))
        self.session = self.lake.session
        open_lake(self.session)
        drop_expired(self.lake.engine)

    def do(self, text: str, session: Session | None = None) -> None:
        """Run statements as a session's user does."""
        for statement in parse(text):
            (session or self.session).perform(statement)

    def close(self) -> None:
        """Close the session and the catalog."""
        self.session.close()
        self.lake.catalog.close()

    def branches(self) -> list[str]:
        """Return the names of the branches."""
        entries = self.lake.catalog.branches.entries()
        return [entry.name for entry in entries if not entry.is_tag]

    def write(self, marker: str, chance: random.Random, session: Session) -> None:
        """Insert a pair of rows, and move an amount between two accounts or create a table."""
        kind = chance.choice(["plain", "plain", "move", "create"])
        amount = chance.randrange(1, 100)
        self.do("BEGIN", session)
        try:
            for table, sign in zip(TABLES, (-1, 1), strict=True):
                self.do(f"INSERT INTO {table} VALUES ('{marker}', {sign * amount})", session)
                if kind == "move":
                    account = f"account{chance.randrange(ACCOUNTS)}"
                    change = f"n = n + {sign * amount} WHERE k = '{account}'"
                    self.do(f"UPDATE {table} SET {change}", session)
            if kind == "create" and chance.random() < 0.3:
                self.do(f"CREATE TABLE {marker} (k STRING)", session)
                self.do(f"INSERT INTO {marker} VALUES ('{marker}')", session)
            self.do("COMMIT", session)
        except BaseException:
            if session.current is not None:
                self.do("ROLLBACK", session)
            raise

    def commit_on(self, branch: str, marker: str, chance: random.Random) -> None:
        """Commit a pair of rows on a branch."""
        session = Session(self.lake.engine, HANDLERS)
        try:
            self.do(f"USE BRANCH {branch}", session)
            self.write(marker, chance, session)
        finally:
            session.close()


def step(worker: Worker, action: str, chance: random.Random) -> str | None:
    """Carry out an action; return the line that tells it, None if there was nothing to do."""
    marker = f"m{uuid.uuid4().hex}"
    if action == "main":
        worker.write(marker, chance, worker.session)
        return f"main - {marker}"
    if action == "create":
        if len(worker.branches()) > 5:
            return None
        worker.do(f"CREATE BRANCH {marker}")
        return f"create {marker} -"
    names = [name for name in worker.branches() if name.startswith("m")]
    if not names:
        return None
    name = chance.choice(names)
    if action == "commit":
        worker.commit_on(name, marker, chance)
    else:
        worker.do(f"{action} BRANCH {name}")
    return f"{action} {name} {marker}"


def main(place: str, catalog: str, told: str, seed: int) -> None:
    """Work until the process is killed."""
    work_until_killed(lambda: Worker(place, catalog), step, _ACTIONS, told, seed, TxlakeError)
