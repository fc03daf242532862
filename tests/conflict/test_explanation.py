"""What would abort a statement: the rules' own answers for each kind of concurrent writer."""

from __future__ import annotations

import pytest

from tests.conflict.cases import PROTOCOL, metadata, read
from txlake.conflict.explanation import ConcurrentWriter, Effect, PlannedStatement, explain
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.log.snapshot import Snapshot

APPEND, DELETE_READ = "ConcurrentAppendException", "ConcurrentDeleteReadException"
DELETE_DELETE, METADATA = "ConcurrentDeleteDeleteException", "MetadataChangedException"
UPDATE_CONFLICT = "UpdateConflict"


def answers(
    effect: Effect, level: Level, *, vectors: bool = True, **more: object
) -> dict[str, str]:
    """By kind of writer, the error's name; only of those that conflict."""
    base = Snapshot.empty("t").apply(
        [PROTOCOL, metadata(delta__enableDeletionVectors=str(vectors).lower())]
    )
    one = {"reads": (read("p = '1'"),)} if effect is Effect.CHANGES else {}
    intent = PlannedStatement(base=base, effect=effect, level=level, **{**one, **more})  # type: ignore[arg-type]
    return {
        found.writer.name: found.conflict.error.__name__
        for found in explain(intent)
        if found.conflict is not None
    }


CHANGE = {
    "READING_INSERT": APPEND,
    "DELETE_SAME": DELETE_READ,
    "UPDATE_SAME": APPEND,
    "ALTER": METADATA,
}
MOVES = ("DELETE_SAME", "UPDATE_SAME", "SAME_FILES", "OPTIMIZE", "ZORDER")
BY_FILE = {**CHANGE, **dict.fromkeys(("SAME_FILES", "OPTIMIZE", "ZORDER"), DELETE_READ)}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, CHANGE),
        ({"by_row": False}, {**CHANGE, "SAME_FILES": DELETE_READ}),
        ({"granularity": Granularity.FILE}, BY_FILE),
        ({"vectors": False}, {**BY_FILE, "DELETE_SAME": APPEND, "SAME_FILES": APPEND}),
        (
            {"granularity": Granularity.TABLE},
            dict.fromkeys((one.name for one in ConcurrentWriter), UPDATE_CONFLICT)
            | {"ALTER": METADATA},
        ),
    ],
    ids=["rows", "condition", "files", "no vectors", "table"],
)
def test_a_change_under_write_serializable(
    more: dict[str, object], expected: dict[str, str]
) -> None:
    found = answers(Effect.CHANGES, Level.WRITE_SERIALIZABLE, **more)  # type: ignore[arg-type]
    if more.get("granularity") is Granularity.TABLE:
        blind = ("BLIND_INSERT", "OTHER_INSERT")
        expected = {name: error for name, error in expected.items() if name not in blind}
    assert found == expected


def test_a_change_at_the_other_levels() -> None:
    assert answers(Effect.CHANGES, Level.SERIALIZABLE) == {**CHANGE, "BLIND_INSERT": APPEND}
    assert answers(Effect.CHANGES, Level.SNAPSHOT) == {
        "DELETE_SAME": DELETE_DELETE,
        "UPDATE_SAME": DELETE_DELETE,
        "ALTER": METADATA,
    }


def test_a_read_of_the_whole_table() -> None:
    found = answers(Effect.APPENDS, Level.SERIALIZABLE, reads=(read(),))
    assert found == {
        **dict.fromkeys(("BLIND_INSERT", "READING_INSERT", "OTHER_INSERT", "UPDATE_SAME"), APPEND),
        **dict.fromkeys(("DELETE_SAME", "SAME_FILES", "OTHER_FILES"), DELETE_READ),
        "ALTER": METADATA,
    }


def test_what_reads_nothing() -> None:
    for level in Level:
        assert answers(Effect.APPENDS, level) == {"ALTER": METADATA}
        for effect in (Effect.COMPACTS, Effect.SORTS):
            assert answers(effect, level) == {"ALTER": METADATA}
            assert answers(effect, level, vectors=False) == {
                **dict.fromkeys(MOVES, DELETE_DELETE),
                "ALTER": METADATA,
            }


def test_an_overwrite() -> None:
    assert answers(Effect.REPLACES, Level.SERIALIZABLE, reads=(read(),)).keys() == {
        one.name
        for one in ConcurrentWriter
        if one not in (ConcurrentWriter.OPTIMIZE, ConcurrentWriter.ZORDER)
    }
