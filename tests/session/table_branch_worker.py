"""A process that works on a path table and its branches until it is killed, without a lake.

It tells what it was told to be done, a line each, in a file that processes share. Rows name the
transaction that inserted them. Names of branches are never used again.
"""

from __future__ import annotations

import random
import uuid

from tests.session.offline import plane_without_spark
from tests.support.killing import work_until_killed
from txlake.commands import HANDLERS
from txlake.commands.table_branches import open_branches
from txlake.errors import TxlakeError
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.sql import parse
from txlake.sql.statements import TablePath
from txlake.system import System

ACCOUNTS = 8
_ACTIONS = {"main": 3, "create": 3, "commit": 10, "publish": 4, "rebase": 4, "drop": 1}
_BRANCHES_MAX = 4


class Worker:
    """One process's session on the table at a place."""

    def __init__(self, place: str) -> None:
        system, settings = System(), Settings()
        self.place = place
        plane = plane_without_spark(system, settings)
        self.session = Session(Engine(system=system, settings=settings, plane=plane), HANDLERS)

    def do(self, text: str) -> None:
        """Run statements about the table `{t}`."""
        for statement in parse(text.format(t=f"delta.`{self.place}`")):
            self.session.perform(statement)

    def branches(self) -> list[str]:
        """Return the names of the open branches."""
        return [one.name for one in open_branches(self.session, TablePath(self.place))]

    def write(self, marker: str, chance: random.Random, at: str = "") -> None:
        """Insert a row, and change an account that others change too."""
        table = f"delta.`{self.place}{at}`"
        self.do("BEGIN")
        try:
            self.do(f"INSERT INTO {table} VALUES ('{marker}', 1)")
            if chance.random() < 0.3:
                account = f"account{chance.randrange(ACCOUNTS)}"
                self.do(f"UPDATE {table} SET n = n + 1 WHERE k = '{account}'")
            self.do("COMMIT")
        except BaseException:
            if self.session.current is not None:
                self.do("ROLLBACK")
            raise


def step(worker: Worker, action: str, chance: random.Random) -> str | None:
    """Carry out an action; return the line that tells it, None if there was nothing to do."""
    marker = f"m{uuid.uuid4().hex}"
    if action == "main":
        worker.write(marker, chance)
        return f"main - {marker}"
    names = worker.branches()
    if action == "create":
        if len(names) >= _BRANCHES_MAX:
            return None
        worker.do(f"CREATE BRANCH {marker} FOR TABLE {{t}}")
        return f"create {marker} -"
    if not names:
        return None
    name = chance.choice(names)
    if action == "commit":
        worker.write(marker, chance, f"@branch:{name}")
    else:
        worker.do(f"{action} BRANCH {name} FOR TABLE {{t}}")
    return f"{action} {name} {marker}"


def main(place: str, told: str, seed: int) -> None:
    """Work until the process is killed."""
    work_until_killed(lambda: Worker(place), step, _ACTIONS, told, seed, TxlakeError)
