"""The driver's look at rows in doubt: a no is exact, and what it can't tell is a yes."""

from __future__ import annotations

import datetime
import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.commit.log_of import LogOf, vector
from txlake.commit.row_probe import FileProbe
from txlake.conflict.context import FileRows
from txlake.conflict.footprint import Read
from txlake.errors import CorruptTable
from txlake.log.predicates import bind, parse_predicate
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, Metadata, Protocol

TYPES = {
    "id": "long",
    "s": "string",
    "d": "double",
    "day": "date",
    "at": "timestamp",
    "n": "decimal(10,2)",
    "p": "integer",
    "st": {"type": "struct", "fields": [{"name": "a", "type": "long"}]},
}
ROWS = pa.table(
    {
        "id": [1, 2, None],
        "s": ["a", None, "ab"],
        "d": [0.0, math.nan, 1.5],
        "day": [datetime.date(2026, 1, 5), None, datetime.date(1500, 1, 1)],
        "at": pa.array(
            [datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)] * 3, pa.timestamp("us", "UTC")
        ),
        "n": [Decimal("1.10"), Decimal("2.00"), None],
        "st": [{"a": 1}] * 3,
    }
)


def field(name: str, kind: object, physical: str | None = None) -> dict[str, object]:
    if isinstance(kind, dict):
        inner = [field(one["name"], one["type"]) for one in kind["fields"]]
        kind = {"type": "struct", "fields": inner}
    mapped = {} if physical is None else {"delta.columnMapping.physicalName": physical}
    if physical is not None:
        mapped["delta.columnMapping.id"] = 1  # type: ignore[assignment]
    return {"name": name, "type": kind, "nullable": True, "metadata": mapped}


class Vectors:
    """The deletion vectors that a test says; the others can't be read."""

    def __init__(self, *positions: int) -> None:
        self.positions = BitMap64(positions)

    def of(self, vector: DeletionVector) -> BitMap64:
        if not self.positions:
            raise CorruptTable("gone")
        return self.positions

    def of_id(self, vector_id: str) -> BitMap64:
        raise CorruptTable("gone")


MAPS = Protocol(min_reader_version=2, min_writer_version=5)


class Table:
    """One file of a table, and what a probe says of it."""

    def __init__(
        self,
        rows: pa.Table = ROWS,
        *,
        mode: str | None = None,
        physical: dict[str, str] | None = None,
        about: dict[str, str] | None = None,
        partition: str | None = "7",
        partition_column: str = "p",
    ) -> None:
        names = physical or {}
        fields = [field(name, kind, names.get(name)) for name, kind in TYPES.items()]
        settings = {} if mode is None else {"delta.columnMapping.mode": mode}
        metadata = Metadata(
            id="t",
            schema_string=json.dumps({"type": "struct", "fields": fields}),
            partition_columns=(partition_column,),
            configuration=settings,
        )
        self.snapshot = Snapshot.empty("t").apply([MAPS, metadata])
        self.store = LogOf().store
        out = io.BytesIO()
        pq.write_table(rows.replace_schema_metadata(about), out)
        self.store.put("a b", out.getvalue())
        self.file = Add(
            path="a%20b",
            partition_values={"p": partition},
            size=len(out.getvalue()),
            modification_time=1,
            data_change=True,
        )

    def read(self, text: str | None) -> Read:
        if text is None:
            return Read()
        return Read(predicate=bind(parse_predicate(text), self.snapshot.schema), text=text)

    def probe(self, **more: object) -> FileProbe:
        parts = {"vectors": Vectors(), "bytes_max": 10**6, **more}
        vectors = parts.pop("vectors")
        return FileProbe(self.snapshot, self.store, vectors, **parts)  # type: ignore[arg-type]

    def matches(self, text: str | None, positions: Sequence[int] | None = None) -> bool:
        where = None if positions is None else BitMap64(positions)
        found = self.probe().matching(self.read(text), [FileRows(file=self.file, positions=where)])
        assert found is not None
        return bool(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 1", True),
        ("id = 3", False),
        ("ID = 3", False),
        ("id IN (5, 6)", False),
        ("id BETWEEN 3 AND 9", False),
        ("id IS NULL AND s = 'ab'", True),
        ("id IS NULL AND s = 'a'", False),
        ("NOT (id = 1) AND s IS NOT NULL", False),
        ("s LIKE 'ab%'", True),
        ("s LIKE 'b%'", False),
        ("s = 'b' OR n = 1.1", True),
        ("n = 1.2", False),
        ("d = -0.0", True),
        ("d > 2", True),  # NaN is greater than any number
        ("d > 2 AND id = 1", False),
        ("day = DATE '2026-01-05'", True),
        ("day > DATE '2026-01-05'", False),
        ("at = TIMESTAMP '2026-01-05 01:00:00+01:00'", True),
        ("at = TIMESTAMP '2026-01-05 01:00:00Z'", False),
        ("p = 7", True),
        ("p = 8", False),
        ("st.a = 9", True),  # not modelled
        ("st.a = 9 AND id = 3", False),
        ("abs(id) = 9", True),  # not modelled
        ("abs(id) = 9 AND id = 3", False),
    ],
)
def test_what_the_rows_say(text: str, expected: bool) -> None:
    assert Table().matches(text) is expected


def test_only_the_rows_that_are_asked_about() -> None:
    table = Table()
    assert table.matches("id = 1", [0])
    assert not table.matches("id = 1", [1, 2])
    assert table.matches(None, [1])
    marked = FileRows(file=replace(table.file, deletion_vector=vector()))
    probe = table.probe(vectors=Vectors(0))
    assert probe.matching(table.read("id = 1"), [marked]) == []
    found = probe.matching(table.read("id = 2 OR s = 'ab'"), [marked])
    assert found == [FileRows(file=marked.file, positions=BitMap64([1, 2]))]


def test_partition_values_are_typed_and_their_names_folded() -> None:
    assert Table(partition="07").matches("p = 7")
    assert not Table(partition=None).matches("p = 7")
    assert Table(partition=None).matches("p IS NULL")
    assert not Table(partition_column="P").matches("p IS NULL")
    assert Table(partition="seven").matches("p = 8")  # no integer


def test_a_column_that_the_file_lacks_is_null() -> None:
    assert not Table(ROWS.drop(["s"])).matches("s = 'a'")
    assert Table(ROWS.drop(["s"])).matches("s IS NULL")


def test_columns_of_other_names() -> None:
    upper = ROWS.rename_columns([name.upper() for name in ROWS.column_names])
    assert Table(upper).matches("id = 1")  # letter case is nothing to Spark
    mapped = ROWS.rename_columns([f"col-{name}" for name in ROWS.column_names])
    physical = {name: f"col-{name}" for name in (*ROWS.column_names, "p")}
    table = Table(mapped, mode="name", physical=physical)
    assert table.matches("id = 1")
    assert not table.matches("id = 3")
    assert Table(mapped, mode="id", physical=physical).matches("id = 3")
    twice = ROWS.append_column("ID", pa.array([9, 9, 9]))
    assert Table(twice).matches("id = 3")


def test_columns_of_other_types() -> None:
    small = ROWS.set_column(0, "id", pa.array([1, 2, None], pa.int32()))
    assert Table(small).matches("id = 1")
    assert not Table(small).matches("id = 3")
    words = ROWS.set_column(0, "id", pa.array(["x", "y", "z"]))
    assert Table(words).matches("id = 3")
    local = ROWS.set_column(4, "at", ROWS.column("at").cast(pa.timestamp("us")))
    assert Table(local).matches("at = TIMESTAMP '2026-01-05 01:00:00Z'")


@pytest.mark.parametrize(
    "about",
    [
        {"org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.version": "2.4.8"},
        {"org.apache.spark.version": "3.0.1", "org.apache.spark.legacyINT96": ""},
    ],
)
def test_days_of_another_calendar_are_in_doubt(about: dict[str, str]) -> None:
    assert not Table().matches("day = DATE '1500-01-10'")
    assert Table(about=about).matches("day = DATE '1500-01-10'")
    assert not Table(about=about).matches("id = 3")


def test_what_cant_be_read_is_in_doubt() -> None:
    table = Table()
    marked = replace(table.file, deletion_vector=vector())
    three = table.read("id = 3")
    assert table.probe().matching(three, [FileRows(file=marked)]) == [FileRows(file=marked)]
    table.store.put("a b", b"PAR1")
    assert table.matches("id = 3")
    table.store.delete(["a b"])
    assert table.matches("id = 3")
    elsewhere = replace(table.file, path="file:/a%20b")
    assert table.probe().matching(three, [FileRows(file=elsewhere)]) == [FileRows(file=elsewhere)]


class Beyond:
    """Another probe, that is asked for what this one can't tell."""

    def __init__(self, answer: Sequence[FileRows] | None = None) -> None:
        self.answer = answer
        self.asked: list[Sequence[FileRows]] = []

    def matching(self, read: Read, rows: Sequence[FileRows]) -> Sequence[FileRows] | None:
        self.asked.append(rows)
        return self.answer


def test_what_is_too_large_goes_to_another_probe() -> None:
    table = Table()
    rows, one = [FileRows(file=table.file)], table.read("id = 1")
    assert table.probe(bytes_max=10).matching(one, rows) is None
    assert table.probe(bytes_max=10, fallback=Beyond()).matching(one, rows) is None
    assert table.probe(bytes_max=10, fallback=Beyond([])).matching(one, rows) == []
    exact = [FileRows(file=table.file, positions=BitMap64([0]))]
    assert table.probe(bytes_max=10, fallback=Beyond(exact)).matching(one, rows) == exact


def test_only_what_is_left_in_doubt_goes_to_another_probe() -> None:
    table = Table()
    rows = [FileRows(file=table.file, positions=BitMap64([place])) for place in (0, 1)]
    for text, asked, left in (
        ("id = 3", [], []),
        ("id = 1", [], rows[:1]),  # certain
        ("id = 1 OR abs(id) = 2", [], rows[:1]),  # and the other row isn't named
        ("id = 1 AND abs(id) = 2", [rows[:1]], [FileRows(file=table.file)]),  # none is named
    ):
        silent, fallback = Beyond(), Beyond([])
        assert table.probe(fallback=silent).matching(table.read(text), rows) == left
        assert silent.asked == asked
        assert table.probe(fallback=fallback).matching(table.read(text), rows) == (
            [] if asked else left
        )


def test_a_file_is_read_once_for_many_winners() -> None:
    table = Table()
    probe, two = table.probe(), table.read("id = 2")
    for place in range(3):
        rows = [FileRows(file=table.file, positions=BitMap64([place]))]
        assert probe.matching(two, rows) == (rows if place == 1 else [])
    assert table.store.requests.count(("get", "a b")) == 1
