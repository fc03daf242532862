"""The same statements on a branch that is published, and on main: equal tables, or a conflict.

Statements are drawn by a seed: DML, MERGE, columns, properties, compaction and transactions, on
tables with and without deletion vectors, partitions, column mapping and identity columns.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.simulation.rows import RowEngine, RowSession
from txlake.catalog import Catalog
from txlake.conflict.levels import Level
from txlake.errors import Conflict
from txlake.log.snapshot import Snapshot
from txlake.settings import Settings
from txlake.sql.statements import TableName
from txlake.storage import open_store
from txlake.system import System

KEYS = 8
_numbers = count(1)
Rows = Counter[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The features of a table."""

    has_vectors: bool
    is_partitioned: bool
    is_mapped: bool
    has_identity: bool = False

    def statement(self) -> str:
        """The statement that creates the table."""
        identity = ", k BIGINT GENERATED ALWAYS AS IDENTITY" if self.has_identity else ""
        partitions = "PARTITIONED BY (p)" if self.is_partitioned else ""
        properties = {
            "delta.enableDeletionVectors": str(self.has_vectors).lower(),
            "delta.columnMapping.mode": "name" if self.is_mapped else "none",
        }
        given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return (
            f"CREATE TABLE t (id BIGINT, v BIGINT, p STRING{identity}) USING delta {partitions} "
            f"TBLPROPERTIES ({given})"
        )


SHAPES = [
    Shape(has_vectors, is_partitioned, is_mapped)
    for has_vectors in (True, False)
    for is_partitioned in (True, False)
    for is_mapped in (True, False)
]


class Statements:
    """Drawn statements; a table's columns follow from those that were drawn before."""

    def __init__(self, chance: random.Random, shape: Shape, keys: range) -> None:
        self._chance, self._shape, self._keys = chance, shape, keys
        self._added: list[str] = []
        self._drawn = 0

    def draw(self, count: int, *, defines: bool = True) -> list[str]:
        """Return statements, each of which may be a transaction."""
        return [self._statement(defines=defines) for _ in range(count)]

    def _statement(self, *, defines: bool) -> str:
        kind = self._chance.random()
        if kind < 0.15:
            inner = "; ".join(self._change() for _ in range(self._chance.randint(2, 3)))
            return f"BEGIN; {inner}; COMMIT"
        if kind < 0.25:
            return self._chance.choice(["OPTIMIZE t", "OPTIMIZE t ZORDER BY (v)"])
        if kind < 0.4 and defines:
            return self._definition()
        return self._change()

    def _change(self) -> str:
        chance, key = self._chance, self._chance.choice(self._keys)
        part, value = chance.choice("ab"), chance.randrange(100)
        where = chance.choice([f"id = {key}", f"id IN ({key}, {key + 1})", f"v > {value}"])
        insert = f"INSERT INTO t (id, v, p) VALUES ({key}, {value}, '{part}')"
        merge = (
            f"MERGE INTO t USING (SELECT {key} AS id, {value} AS v, '{part}' AS p) AS s "
            "ON t.id = s.id WHEN MATCHED AND t.v > 90 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET v = t.v + s.v "
            "WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, s.p)"
        )
        changes = [
            insert,
            f"{insert}, ({key + 1}, {value}, '{part}')",
            f"UPDATE t SET v = v + {value} WHERE {where}",
            f"UPDATE t SET p = '{part}' WHERE {where}",
            f"DELETE FROM t WHERE {where}",
            f"INSERT INTO t (id, v, p) SELECT id, v + 1, p FROM t WHERE id = {key}",
            merge,
        ]
        if self._added:
            changes.append(f"UPDATE t SET {chance.choice(self._added)} = {value} WHERE {where}")
        return chance.choice(changes)

    def _definition(self) -> str:
        self._drawn += 1
        name = f"c{self._drawn}"
        kind = self._chance.random()
        if self._added and self._shape.is_mapped and kind < 0.3:
            old = self._added.pop(self._chance.randrange(len(self._added)))
            self._added.append(name)
            return f"ALTER TABLE t RENAME COLUMN {old} TO {name}"
        if self._added and self._shape.is_mapped and kind < 0.5:
            gone = self._added.pop(self._chance.randrange(len(self._added)))
            return f"ALTER TABLE t DROP COLUMN {gone}"
        if kind < 0.7:
            return f"ALTER TABLE t SET TBLPROPERTIES ('note' = '{name}')"
        self._added.append(name)
        return f"ALTER TABLE t ADD COLUMN {name} BIGINT"


@dataclass(slots=True)
class Lake:
    """A lake with one table of a shape, and sessions at Serializable."""

    shape: Shape
    place: str = field(default_factory=lambda: f"memory://differential{next(_numbers)}")
    engine: RowEngine = field(init=False)
    main: RowSession = field(init=False)

    def __post_init__(self) -> None:
        system = System()
        self.engine = RowEngine(
            system=system,
            settings=Settings(),
            warehouse=open_store(self.place),
            catalog=Catalog("sqlite://", system),
        )
        self.main = self.session()
        self.main.rows(self.shape.statement())
        rows = ", ".join(f"({key}, {key * 13}, '{'ab'[key % 2]}')" for key in range(KEYS))
        self.main.rows(f"INSERT INTO t (id, v, p) VALUES {rows}")

    def session(self) -> RowSession:
        """A session on main."""
        return RowSession(self.engine, level=Level.SERIALIZABLE)

    def on(self, name: str) -> RowSession:
        """A session on a branch, which is created if need be."""
        session = self.session()
        session.rows(f"CREATE BRANCH IF NOT EXISTS {name}; USE BRANCH {name}")
        return session

    def snapshot(self) -> Snapshot:
        """Main's newest version."""
        return self.main.snapshot(TableName(("t",)))

    def rows(self) -> Rows:
        """Main's rows without the values of an identity column, as txlake reads them."""
        names = [name for name in self.snapshot().schema.names if name != "k"]
        found = self.main.rows(f"SELECT {', '.join(names)} FROM t")
        return Counter(tuple(row[name] for name in names) for row in found)

    def rows_elsewhere(self, folder: Path) -> Rows:
        """Main's rows as delta-rs reads them from a copy of the table in a folder."""
        store = open_store(f"{self.place}/t")
        for item in store.list(""):
            path = folder / item.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.get(item.path))
        query = QueryBuilder().register("t", DeltaTable(str(folder)))
        read = pa.table(query.execute(f"SELECT {', '.join(self.snapshot().schema.names)} FROM t"))
        return Counter(zip(*(each.to_pylist() for each in read.columns), strict=True))


def definition_of(snapshot: Snapshot) -> tuple[object, ...]:
    """The names and types of the columns, the partition columns, and the properties."""
    columns = [(item.name, item.type, item.nullable) for item in snapshot.schema.fields]
    return columns, snapshot.partition_columns, dict(snapshot.metadata.configuration)


def check_equal(branched: Lake, plain: Lake, folder: Path) -> None:
    """Require that both lakes' tables are equal, for txlake and where it can for delta-rs."""
    assert branched.rows() == plain.rows()
    assert definition_of(branched.snapshot()) == definition_of(plain.snapshot())
    if not branched.shape.is_mapped:  # delta-rs can't read column mapping
        assert branched.rows_elsewhere(folder) == branched.rows()


def drawn(cells: int) -> list[tuple[Shape, int]]:
    """Shapes with seeds, each shape as often."""
    return [(SHAPES[number % len(SHAPES)], number) for number in range(cells)]


@pytest.mark.broad(keep=8)
@pytest.mark.parametrize(("shape", "seed"), drawn(80))
def test_a_published_branch_has_what_main_would_have(
    tmp_path: Path, shape: Shape, seed: int
) -> None:
    branched, plain = Lake(shape), Lake(shape)
    statements = Statements(random.Random(seed), shape, range(KEYS)).draw(8)
    x, before = branched.on("x"), branched.rows()
    for text in statements:
        x.rows(text)
        plain.main.rows(text)
    assert branched.rows() == before, "main has seen nothing"
    branched.main.rows("PUBLISH BRANCH x")
    check_equal(branched, plain, tmp_path)


@pytest.mark.broad(keep=8)
@pytest.mark.parametrize(("shape", "seed"), drawn(120))
def test_a_published_branch_comes_after_main_or_conflicts(
    tmp_path: Path, shape: Shape, seed: int
) -> None:
    """Where the two touch other rows, and only one defines columns, it never conflicts."""
    chance = random.Random(f"beside {seed}")
    is_apart = chance.random() < 0.5
    branched, plain = Lake(shape), Lake(shape)
    ours = Statements(chance, shape, range(KEYS // 2) if is_apart else range(KEYS))
    theirs = Statements(chance, shape, range(KEYS // 2 + 1, KEYS + 1) if is_apart else range(KEYS))
    on_branch, on_main = ours.draw(4), theirs.draw(3, defines=False)
    x = branched.on("x")
    turns = [True] * len(on_branch) + [False] * len(on_main)
    chance.shuffle(turns)
    left = {True: iter(on_branch), False: iter(on_main)}
    for is_branchs in turns:
        (x if is_branchs else branched.main).rows(next(left[is_branchs]))
    try:
        if chance.random() < 0.3:
            branched.main.rows("REBASE BRANCH x")
        branched.main.rows("PUBLISH BRANCH x")
    except Conflict:
        for text in on_main:
            plain.main.rows(text)
    else:
        for text in (*on_main, *on_branch):
            plain.main.rows(text)
    check_equal(branched, plain, tmp_path)


@pytest.mark.broad(keep=4)
@pytest.mark.parametrize("seed", range(24))
def test_no_identity_value_is_given_twice_on_any_branch(seed: int) -> None:
    """Each row has a number of its own; the values of all that ever were are collected."""
    chance = random.Random(f"identity {seed}")
    lake = Lake(Shape(True, False, False, has_identity=True))
    given: dict[object, object] = {row["v"]: row["k"] for row in lake.main.rows("SELECT * FROM t")}
    names: list[str] = []
    for number in range(1000, 1025):
        kind = chance.random()
        if kind < 0.2 and len(names) < 3:
            names.append(f"b{number}")
            lake.on(names[-1])
        elif kind < 0.35 and names:
            name = chance.choice(names)
            action = chance.choice(["PUBLISH", "DROP", "REBASE"])
            lake.main.rows(f"{action} BRANCH {name}")
            names = [one for one in names if action == "REBASE" or one != name]
        session = lake.on(chance.choice(names)) if names and chance.random() < 0.7 else lake.main
        values = f"({number}, {number}, 'a'), ({number}, {-number}, 'b')"
        session.rows(f"INSERT INTO t (id, v, p) VALUES {values}")
        for row in session.rows("SELECT * FROM t"):
            assert given.setdefault(row["v"], row["k"]) == row["k"]
    assert len(set(given.values())) == len(given)
