"""The change feed of a published branch is that of one transaction with the branch's statements."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

import pytest

from tests.simulation.rows.engine import RowEngine
from txlake.catalog import Catalog
from txlake.commands import HANDLERS
from txlake.session.command import AsRows
from txlake.session.session import Session
from txlake.session.views.describe import Rows
from txlake.settings import Settings
from txlake.sql import parse
from txlake.storage import open_store
from txlake.system import System

Row = tuple[object, ...]
_numbers = count(1)


class RowLake:
    """A lake in memory, whose rows this process holds, with tables `one` and `many`."""

    def __init__(self, chance: random.Random) -> None:
        self.engine = RowEngine(
            system=System(),
            settings=Settings(),
            warehouse=open_store(f"memory://feeds{next(_numbers)}", {}),
            catalog=Catalog("sqlite://", System()),
            open_store=open_store,
        )
        self.session = self.on(None)
        vectors = chance.choice(("true", "false"))
        partitioned = chance.choice(("", "PARTITIONED BY (p) "))
        rows = ", ".join(f"({key}, {key}, {key % 3})" for key in range(9))
        for name in ("one", "many"):
            self.do(
                f"CREATE TABLE {name} (id BIGINT, v BIGINT, p BIGINT) {partitioned}TBLPROPERTIES "
                "('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = "
                f"'{vectors}')"
            )
            self.do(f"INSERT INTO {name} VALUES {rows}")

    def on(self, branch: str | None) -> Session:
        """A session on a branch, or on main."""
        session = Session(self.engine, HANDLERS)
        if branch is not None:
            self.do(f"USE BRANCH {branch}", session)
        return session

    def do(self, text: str, session: Session | None = None) -> None:
        for statement in parse(text):
            (session or self.session).perform(statement)

    def rows(self, text: str) -> list[Row]:
        """The sorted rows of a query."""
        [statement] = parse(text)
        answer = self.session.answer_in(None, statement)(AsRows())
        rows = answer.rows if isinstance(answer, Rows) else answer.collect()
        return sorted(map(tuple, rows))

    def feed(self, table: str) -> list[Row]:
        """The changes of the newest version, without its number and time."""
        newest = max(int(str(row[0])) for row in self.rows(f"DESCRIBE HISTORY {table}"))
        query = f"SELECT id, v, p, _change_type FROM table_changes('{table}', {newest})"
        return self.rows(query)


def statements(chance: random.Random) -> list[str]:
    """Random statements on a table that is written `@`."""

    def made() -> str:
        key, other, value = chance.randrange(12), chance.randrange(12), chance.randrange(100)
        return chance.choice(
            (
                f"INSERT INTO @ VALUES ({key}, {value}, {value % 3}), ({other}, {value}, 1)",
                f"UPDATE @ SET v = {value} WHERE id = {key}",
                f"UPDATE @ SET v = v + 1 WHERE v > {value // 4}",
                f"UPDATE @ SET p = p + 1 WHERE id IN ({key}, {other})",
                f"DELETE FROM @ WHERE id = {key}",
                f"DELETE FROM @ WHERE p = {key % 4}",
                "OPTIMIZE @",
            )
        )

    return [made() for _ in range(chance.randrange(1, 8))]


def groups(chance: random.Random, texts: Sequence[str]) -> list[Sequence[str]]:
    """The statements in transactions of one or a few each."""
    found: list[Sequence[str]] = []
    start = 0
    while start < len(texts):
        end = start + chance.choice((1, 1, 1, 2, 3))
        found.append(texts[start:end])
        start = end
    return found


def check(seed: int) -> None:
    """Publish random statements from a branch, sometimes through another or after a rebase."""
    chance = random.Random(seed)
    lake = RowLake(chance)
    texts = statements(chance)
    lake.do("CREATE BRANCH x")
    nested = chance.random() < 0.3
    at = chance.randrange(len(texts)) if nested else len(texts)
    _perform(lake, lake.on("x"), chance, texts[:at])
    if nested:
        lake.do("CREATE BRANCH y FROM BRANCH x")
        _perform(lake, lake.on("y"), chance, texts[at:])
        lake.do(f"PUBLISH BRANCH y{chance.choice(('', ' PER TABLE'))}")
    if chance.random() < 0.3:
        lake.do("REBASE BRANCH x")
    before = lake.rows("DESCRIBE HISTORY many")
    lake.do("PUBLISH BRANCH x")
    script = "; ".join(texts).replace("@", "one")
    lake.do(f"BEGIN; {script}; COMMIT")
    assert lake.rows("SELECT * FROM many") == lake.rows("SELECT * FROM one")
    if len(lake.rows("DESCRIBE HISTORY many")) > len(before):
        assert lake.feed("many") == lake.feed("one"), texts


def _perform(lake: RowLake, session: Session, chance: random.Random, texts: Sequence[str]) -> None:
    for group in groups(chance, [text.replace("@", "many") for text in texts]):
        lake.do("; ".join(group if len(group) == 1 else ("BEGIN", *group, "COMMIT")), session)


@pytest.mark.parametrize("seed", range(20))
def test_the_feed_is_that_of_one_transaction(seed: int) -> None:
    check(seed)


@pytest.mark.broad
@pytest.mark.parametrize("first", range(100, 1_100, 100))
def test_many_feeds_are_those_of_one_transaction(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)
