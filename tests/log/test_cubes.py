"""Which files an OPTIMIZE of a clustered table takes."""

from __future__ import annotations

import json

import msgspec
import pytest

from txlake.log.cubes import FileCount, plan_clustering
from txlake.protocol.actions import Add, DeletionVector
from txlake.protocol.clustering import Cube, as_clustered, cube_of, in_cube

COLUMNS = (("x",), ("s", "y z"))
NAMES = ("x", "s.`y z`")
TARGET = 10  # so a cube is large from 1,000 bytes on, and new ones have up to 1,500


def _add(path: str, size: int, cube: str | None = None, *columns: str, deleted: int = 0) -> Add:
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="x" * 20, size_in_bytes=1, cardinality=deleted
    )
    add = Add(
        path=path,
        partition_values={},
        size=size,
        modification_time=0,
        data_change=True,
        stats=json.dumps({"numRecords": 100}),
        deletion_vector=vector if deleted else None,
    )
    return add if cube is None else in_cube(add, Cube(cube, columns or NAMES))


def _planned(*files: Add, full: bool = False) -> list[str]:
    """The files of each cube to be, as one text."""
    plan = plan_clustering(files, COLUMNS, full=full, target_file_bytes=TARGET)
    return ["".join(add.path for add in cube) for cube in plan.cubes]


def test_what_is_in_no_cube_is_clustered() -> None:
    assert _planned() == []
    assert _planned(_add("a", 1)) == ["a"]
    assert _planned(_add("a", 700), _add("b", 700), _add("c", 700)) == ["ab", "c"]
    assert _planned(_add("a", 5_000), _add("b", 1)) == ["a", "b"]


@pytest.mark.parametrize("full", [False, True])
def test_one_cube_is_left_alone(full: bool) -> None:
    assert _planned(_add("a", 10, "1"), _add("b", 10, "1"), full=full) == []
    assert _planned(_add("a", 2_000, "1"), full=full) == []
    assert _planned(_add("a", 2_000, "1"), _add("b", 10, "2"), full=full) == []


def test_small_cubes_are_joined_with_what_is_new() -> None:
    assert _planned(_add("a", 10, "1"), _add("b", 10)) == ["ba"]
    assert _planned(_add("a", 10, "2"), _add("b", 10, "1")) == ["ba"]


def test_large_cubes_stay() -> None:
    assert _planned(_add("a", 600, "1"), _add("b", 400, "1"), _add("c", 1)) == ["c"]
    assert _planned(_add("a", 600, "1"), _add("b", 399, "1"), _add("c", 1)) == ["cab"]


def test_a_large_cube_whose_rows_are_mostly_deleted_is_small() -> None:
    assert _planned(_add("a", 2_000, "1", deleted=60), _add("b", 1)) == ["b", "a"]
    assert _planned(_add("a", 2_000, "1", deleted=50), _add("b", 1)) == ["b"]


def test_files_of_other_columns_wait_for_full() -> None:
    files = [_add("a", 10, "1", "y"), _add("b", 5_000, "2", "y"), _add("c", 10, "3")]
    assert _planned(*files) == []
    assert _planned(*files, full=True) == ["ca", "b"]
    assert _planned(*files, _add("d", 2_000, "4"), full=True) == ["ca", "b"]
    assert _planned(_add("a", 10, "1", *reversed(NAMES)), _add("b", 10)) == ["b"]


def test_files_of_another_kind_of_clustering_wait_for_full() -> None:
    foreign = msgspec.structs.replace(_add("a", 10), clustering_provider="other")
    assert _planned(foreign) == []
    assert _planned(foreign, full=True) == ["a"]


def test_the_counts() -> None:
    files = [_add("a", 10, "1"), _add("b", 20, "2"), _add("c", 30, "3", "y"), _add("d", 40)]
    plan = plan_clustering(files, COLUMNS, full=False, target_file_bytes=TARGET)
    assert (plan.in_cubes, plan.others) == (FileCount(2, 30), FileCount(2, 70))
    assert (plan.cubes_before, plan.names) == (2, NAMES)
    assert [add.path for add in plan.files] == ["d", "a", "b"]
    full = plan_clustering(files, COLUMNS, full=True, target_file_bytes=TARGET)
    assert (full.in_cubes, full.others, full.cubes_before) == (
        FileCount(3, 60),
        FileCount(1, 40),
        3,
    )


def test_a_cube_is_read_as_it_was_written() -> None:
    add = _add("a", 1, "1")
    assert add.clustering_provider == "liquid"
    assert cube_of(add) == Cube("1", NAMES)
    assert as_clustered(_add("b", 1), add).tags == add.tags
    assert as_clustered(_add("b", 1), _add("c", 1)).tags is None


@pytest.mark.parametrize(
    "tags",
    [
        None,
        {"ZCUBE_ID": "1"},
        {"ZCUBE_ZORDER_BY": "[]"},
        {"ZCUBE_ID": "1", "ZCUBE_ZORDER_BY": "{"},
        {"ZCUBE_ID": "1", "ZCUBE_ZORDER_BY": '"x"'},
    ],
)
def test_tags_that_name_no_cube(tags: dict[str, str | None] | None) -> None:
    assert cube_of(msgspec.structs.replace(_add("a", 1), tags=tags)) is None
