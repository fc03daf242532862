"""A change of metadata that follows another: named cases, and what each clashes about."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from msgspec.structs import replace

from tests.conflict.cases import SCHEMA, metadata
from txlake.conflict.metadata_updates import Clash, Part, rebase_metadata, updates_between
from txlake.errors import CorruptTable
from txlake.protocol.actions import Metadata
from txlake.protocol.types import parse_schema

ID, P = SCHEMA["fields"]
Columns = tuple[dict[str, Any], ...]


def column(name: str, kind: object = "long", **about: object) -> dict[str, Any]:
    """A column that takes null; `about` is its metadata."""
    return {"name": name, "type": kind, "nullable": True, "metadata": about}


def table(*columns: dict[str, Any], **configuration: str) -> Metadata:
    """The table with these columns; with its own where none are given."""
    schema = {"type": "struct", "fields": list(columns) or [ID, P]}
    text = json.dumps(schema, separators=(",", ":"))  # as txlake writes it
    return replace(metadata(**configuration), schema_string=text)


def about(text: str, of: Metadata | None = None) -> Metadata:
    return replace(of or table(), description=text)


def counting(mark: int | None = None, **more: object) -> dict[str, Any]:
    """The column `id`, an identity, whose last value given is `mark`."""
    settings = {"start": 1, "step": 1, "allowExplicitInsert": False, "highWaterMark": mark}
    named = {f"delta.identity.{key}": one for key, one in settings.items() if one is not None}
    return column("id", **{**named, **more})


BASE = table()
TEXT = {"comment": "new", "__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
CHECK = "delta__constraints__positive"
KEY = "txlake__constraints__t_pk"
# What transactions make of BASE, by name.
CHANGES = {
    "property a": table(a="1"),
    "property b": table(b="1"),
    "comment": about("of orders"),
    "checkpoints": table(delta__checkpointInterval="5"),
    "append-only": table(delta__appendOnly="true"),
    "mapping": table(delta__columnMapping__mode="name"),
    "change feed": table(delta__enableChangeDataFeed="true"),
    "column x": table(ID, P, column("x")),
    "column y": table(ID, P, column("y", "string", **TEXT)),
    "comment on id": table(column("id", comment="the key"), P),
    "default of p": table(ID, column("p", "string", CURRENT_DEFAULT="'a'")),
    "id NOT NULL": table({**ID, "nullable": False}, P),
    "id renamed": table({**ID, "name": "key"}, P),
    "columns moved": table(P, ID),
    "column x first": table(column("x"), ID, P),
    "p dropped": table(ID),
    "column z NOT NULL": table(ID, P, {**column("z"), "nullable": False}),
    "column g generated": table(ID, P, column("g", **{"delta.generationExpression": "id + 1"})),
    "column s with a field NOT NULL": table(
        ID, P, column("s", {"type": "struct", "fields": [{**column("f"), "nullable": False}]})
    ),
    "CHECK": table(**{CHECK: "id > 0"}),
    "CHECK of another name": table(delta__constraints__small="id < 9"),
    "key": table(**{KEY: "PRIMARY KEY (`id`)"}),
    "key of the name": table(txlake__constraints__positive="FOREIGN KEY (`id`) REFERENCES u"),
}
FREE = ("property a", "comment", "checkpoints", "append-only")
DESCRIBING = ("comment on id", "default of p")
COLUMNS = ("column x", "column y")
CHECKS = ("CHECK", "CHECK of another name")
HARMLESS = {
    *itertools.permutations((*FREE, "property b", *COLUMNS, *DESCRIBING, *CHECKS), 2),
    # What changes columns or files stands beside what depends on neither.
    *itertools.product(
        FREE,
        (
            "mapping",
            "change feed",
            "id NOT NULL",
            "id renamed",
            "columns moved",
            "p dropped",
            "key",
        ),
    ),
    *itertools.product(("mapping", "id renamed", "p dropped", "key", "column x first"), FREE),
    # A constraint asks what its columns mean, and others don't ask for constraints.
    *itertools.product(CHECKS, ("mapping", "change feed", "key")),
    *itertools.product((*COLUMNS, *DESCRIBING), ("key", "CHECK")),
    *itertools.product(DESCRIBING, ("mapping", "columns moved")),
}
HARMFUL = {
    ("column x", "mapping"): "the properties that files and columns depend on",
    ("column x", "change feed"): "the properties that files and columns depend on",
    ("column x", "column x first"): "column x",
    ("mapping", "column x"): "the columns",
    ("mapping", "comment on id"): "the columns",
    ("mapping", "change feed"): "the properties that files and columns depend on",
    ("mapping", "CHECK"): "the constraints",
    ("CHECK", "id renamed"): "the values of column id",
    ("CHECK", "p dropped"): "the values of column p",
    ("CHECK", "id NOT NULL"): "the values of column id",
    ("CHECK", "key of the name"): "constraint positive",
    ("key of the name", "CHECK"): "the constraints",
    ("key", "column x"): "the columns",
    ("key", "key of the name"): "the constraints",
    ("id renamed", "comment on id"): "the columns",
    ("comment on id", "id renamed"): "column id",
    ("comment on id", "id NOT NULL"): "column id",
    ("p dropped", "CHECK"): "the constraints",
    ("p dropped", "change feed"): "the properties that files and columns depend on",
    ("columns moved", "column x"): "the columns",
    ("column x first", "column y"): "the columns",
    ("column z NOT NULL", "column x"): "the columns",
    ("column g generated", "id NOT NULL"): "the columns",
    ("column s with a field NOT NULL", "column x"): "the columns",
}


def named(pairs: Iterable[tuple[str, str]]) -> list[ParameterSet]:
    """The pairs as parameters; `a after b` is a change that follows another."""
    return [pytest.param(*pair, id=" after ".join(pair)) for pair in sorted(pairs)]


def follow(ours: str, theirs: str) -> Metadata | Clash:
    return rebase_metadata(CHANGES[ours], BASE, CHANGES[theirs], "t")


@pytest.mark.parametrize(("ours", "theirs"), named(HARMLESS))
def test_harmless(ours: str, theirs: str) -> None:
    found = follow(ours, theirs)
    assert isinstance(found, Metadata), found
    # What follows makes the same updates as before, and undoes none of the other's.
    assert updates_of(CHANGES[theirs], found) == updates_of(BASE, CHANGES[ours])
    kept = {one for one in updates_of(BASE, CHANGES[theirs]) if one[0] is not Part.SCHEMA}
    assert kept <= updates_of(BASE, found)


def updates_of(before: Metadata, after: Metadata) -> set[tuple[Part, str, str]]:
    updates = updates_between(before, after)
    assert updates is not None
    return {(update.part, update.name, repr(update.value)) for update in updates}


@pytest.mark.parametrize(("ours", "theirs"), named(HARMFUL))
def test_harmful(ours: str, theirs: str) -> None:
    assert follow(ours, theirs) == Clash(HARMFUL[ours, theirs])


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_twice(name: str) -> None:
    """Two changes of one property, one column or the comment: the second one hasn't seen it."""
    assert isinstance(follow(name, name), Clash)


@pytest.mark.parametrize(
    "key",
    [
        "delta.appendOnly",
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.checkpointInterval",
        "delta.checkpointRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.isolationLevel",
        "delta.logRetentionDuration",
        "delta.parquet.compression.codec",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
        "txlake.conflictGranularity",
    ],
)
def test_independent_properties(key: str) -> None:
    ours = replace(BASE, configuration={key: "1"})
    found = rebase_metadata(ours, BASE, CHANGES["mapping"], "t")
    assert found == replace(
        CHANGES["mapping"], configuration={**CHANGES["mapping"].configuration, key: "1"}
    )
    assert isinstance(rebase_metadata(CHANGES["mapping"], BASE, ours, "t"), Metadata)


def test_what_goes() -> None:
    base = about("old", table(a="1", b="1", **{CHECK: "id > 0"}))
    ours = about("old", table(b="1", **{CHECK: "id > 0"}))
    theirs = replace(about("old", table(a="1", b="2")), description=None)
    assert rebase_metadata(ours, base, theirs, "t") == table(b="2")
    assert rebase_metadata(theirs, base, ours, "t") == table(b="2")
    dropped = about("old", table(a="1", b="1"))
    renamed = about("old", table({**ID, "name": "key"}, P, a="1", b="1", **{CHECK: "id > 0"}))
    found = rebase_metadata(dropped, base, renamed, "t")
    assert isinstance(found, Metadata)
    assert found.configuration == {"a": "1", "b": "1"}
    assert parse_schema(found.schema_string).names == ("key", "p")


def test_a_property_that_txlake_does_not_know_may_mean_anything() -> None:
    other = table(delta__ofAnotherEngine="1")
    assert rebase_metadata(other, BASE, CHANGES["column x"], "t") == Clash("the columns")
    assert isinstance(rebase_metadata(CHANGES["property a"], BASE, other, "t"), Metadata)


def test_a_column_keeps_its_place() -> None:
    base = table(ID, P, column("q"))
    ours = table(ID, column("p", "string", comment="mine"), column("q"))
    found = rebase_metadata(ours, base, table(ID, P, column("q"), column("x")), "t")
    assert isinstance(found, Metadata)
    assert parse_schema(found.schema_string).names == ("id", "p", "q", "x")


def test_a_name_in_other_letters_is_the_same_column() -> None:
    theirs = table(ID, P, column("X"))
    assert rebase_metadata(CHANGES["column x"], BASE, theirs, "t") == Clash("column x")


def test_a_schema_stays_in_its_own_words() -> None:
    odd = replace(BASE, schema_string=f" {BASE.schema_string}")
    found = rebase_metadata(
        replace(odd, configuration={"a": "1"}), odd, replace(odd, description="x"), "t"
    )
    assert found == replace(odd, configuration={"a": "1"}, description="x")


def test_a_mark_is_taken_into_what_was_changed() -> None:
    base, theirs = table(counting(3), P), table(counting(7), P)
    assert rebase_metadata(table(counting(3), P, a="1"), base, theirs, "t") == table(
        counting(7), P, a="1"
    )
    assert rebase_metadata(table(counting(9), P, a="1"), base, theirs, "t") == table(
        counting(9), P, a="1"
    )
    # beside another change, and in a column that was changed
    commented = table(counting(3, comment="mine"), P)
    found = rebase_metadata(commented, base, table(counting(7), P, column("x")), "t")
    assert isinstance(found, Metadata)
    id_column = parse_schema(found.schema_string).find("id")
    assert id_column is not None
    assert id_column.metadata["delta.identity.highWaterMark"] == 7
    assert id_column.metadata["comment"] == "mine"


def test_anything_follows_moved_marks() -> None:
    base, theirs = table(counting(3), P), table(counting(7), P)
    assert rebase_metadata(table(P), base, theirs, "t") == table(P)
    unpartitioned = replace(table(counting(3), P), partition_columns=())
    assert rebase_metadata(unpartitioned, base, theirs, "t") == replace(
        theirs, partition_columns=()
    )


WHOLE = Clash("the table's partition columns, name or format, or the definition as a whole")


def test_more_than_updates_can_say() -> None:
    unpartitioned = replace(BASE, partition_columns=())
    assert updates_between(BASE, unpartitioned) is None
    assert rebase_metadata(unpartitioned, BASE, CHANGES["property a"], "t") == WHOLE
    assert rebase_metadata(CHANGES["property a"], BASE, unpartitioned, "t") == WHOLE
    replaced = Clash("the table, which this transaction replaces,")
    assert rebase_metadata(replace(BASE, id="another"), BASE, BASE, "t") == replaced


def test_a_schema_that_can_not_be_read() -> None:
    bad = replace(BASE, schema_string="{")
    clash = Clash("the schema, to one that can't be read")
    assert rebase_metadata(CHANGES["property a"], BASE, bad, "t") == clash
    assert rebase_metadata(bad, BASE, CHANGES["property a"], "t") == clash
    with pytest.raises(CorruptTable):
        updates_between(BASE, bad)


def test_an_identity_that_can_not_be_followed() -> None:
    bad = table(counting(3, **{"delta.identity.step": 0}), P)
    clash = Clash("an identity column, to one that can't be followed")
    assert (
        rebase_metadata(replace(bad, configuration={"a": "1"}), bad, about("x", bad), "t") == clash
    )
