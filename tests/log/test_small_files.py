"""Which small files are packed by themselves, and after which commits."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgspec
import pytest

from tests.commit.log_of import metadata
from txlake.log.small_files import PackingLimits, files_to_purge, is_packing_due, small_files
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, Protocol
from txlake.protocol.clustering import Cube, in_cube

LIMITS = PackingLimits(files_min=4, file_bytes_max=1_000, bytes_max=10_000)


def add(name: str, size: int, partition: str | None = None) -> Add:
    return Add(
        path=name,
        partition_values={"p": partition},
        size=size,
        modification_time=0,
        data_change=True,
    )


def table(*adds: Add, version: int = 10) -> Snapshot:
    empty = Snapshot.empty("t")
    made = empty.apply((Protocol(min_reader_version=1, min_writer_version=2), metadata(), *adds))
    return replace(made, version=version)


def sizes(*given: int, limits: PackingLimits = LIMITS) -> list[list[int]]:
    found = table(*(add(f"f{place}", size) for place, size in enumerate(given)))
    return [[one.size for one in files] for files in small_files(found, limits)]


def test_small_files_of_one_partition_become_one() -> None:
    assert sizes(10, 10, 10, 10) == [[10, 10, 10, 10]]
    assert sizes(10, 10, 10) == []


def test_half_of_the_size_is_not_small() -> None:
    assert sizes(10, 10, 10, 499) == [[10, 10, 10]]
    assert sizes(10, 10, 10, 500) == []


def test_partitions_are_packed_apart() -> None:
    adds = [add(f"{p}{n}", 10, p) for p in ("a", "b") for n in range(4)]
    adds += [add(f"c{n}", 10, "c") for n in range(3)]
    found = [
        {one.partition_values["p"] for one in files} for files in small_files(table(*adds), LIMITS)
    ]
    assert found == [{"a"}, {"b"}]


def test_empty_and_missing_partition_values_are_one() -> None:
    adds = [add("a", 1, ""), add("b", 1, None), add("c", 1, ""), add("d", 1, None)]
    assert [len(files) for files in small_files(table(*adds), LIMITS)] == [4]


def test_a_file_larger_than_all_smaller_ones_stays() -> None:
    assert sizes(40, 10, 10, 10, 10) == [[10, 10, 10, 10, 40]]
    assert sizes(41, 10, 10, 10, 10) == [[10, 10, 10, 10]]
    # Files of one size are packed although a few are smaller.
    assert sizes(1, 30, 30, 30, 30) == [[1, 30, 30, 30, 30]]


def test_outputs_have_the_target_size_at_most() -> None:
    assert sizes(400, 400, 400, 400, 400) == [[400, 400], [400, 400]]


def test_no_more_bytes_than_allowed_are_packed() -> None:
    limits = replace(LIMITS, bytes_max=35)
    assert sizes(10, 10, 10, 10, 10, limits=limits) == [[10, 10, 10]]
    assert sizes(10, 10, 10, 10, limits=replace(LIMITS, bytes_max=0)) == []


def test_no_more_files_than_allowed_are_packed() -> None:
    limits = replace(LIMITS, files_max=6)
    adds = [add(f"{p}{n}", 10, p) for p in ("a", "b", "c") for n in range(4)]
    assert [len(files) for files in small_files(table(*adds), limits)] == [4, 2]


def test_files_in_cubes_stay() -> None:
    clustered = [in_cube(add(f"c{n}", 10), Cube("id", ("k",))) for n in range(9)]
    assert list(small_files(table(*clustered), LIMITS)) == []


@pytest.mark.parametrize(
    ("version", "added", "is_due"),
    [(10, 1, True), (11, 1, False), (11, 3, False), (11, 4, True), (20, 0, True)],
)
def test_one_version_in_ten_is_looked_at(version: int, added: int, is_due: bool) -> None:
    found = table(*(add(f"f{n}", 10) for n in range(4)), version=version)
    assert is_packing_due(found, added, LIMITS) is is_due


def test_a_table_of_few_files_is_not_due() -> None:
    assert not is_packing_due(table(*(add(f"f{n}", 10) for n in range(3))), 9, LIMITS)
    assert not is_packing_due(table(*(add(f"f{n}", 900) for n in range(9))), 9, LIMITS)


def test_a_growing_table_is_rewritten_a_logarithmic_number_of_times() -> None:
    limits = PackingLimits(files_min=50, bytes_max=1 << 30)
    chance = random.Random(5)
    files: list[int] = []
    written = total = 0
    for number in range(1, 20_001):
        files.append(size := chance.randrange(900, 1_100))
        total += size
        if number % 10:
            continue
        found = table(*(add(f"f{place}", each) for place, each in enumerate(files)))
        for packed in list(small_files(found, limits)):
            for one in packed:
                files.remove(one.size)
            files.append(sum(one.size for one in packed))
            written += files[-1]
    assert len(files) < 70
    assert written < 10 * total


def purgeable(name: str, deleted: int, size: int = 10, rows: int | None = 100) -> Add:
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="x" * 20, size_in_bytes=1, cardinality=deleted
    )
    return msgspec.structs.replace(
        add(name, size),
        stats=None if rows is None else json.dumps({"numRecords": rows}),
        deletion_vector=vector if deleted else None,
    )


def purged(*files: Add, **limits: float) -> list[str]:
    chosen = PackingLimits(**{"deleted_share_min": 0.2, **limits})  # type: ignore[arg-type]
    return [one.path for one in files_to_purge(files, chosen)]


def test_files_with_many_deleted_rows_are_purged_the_worst_first() -> None:
    files = [purgeable("a", 0), purgeable("b", 20), purgeable("c", 19), purgeable("d", 90)]
    assert purged(*files) == ["d", "b"]
    assert purged(*files, deleted_share_min=0.0) == ["d", "b", "c"]


def test_a_file_whose_rows_are_not_counted_is_purged() -> None:
    assert purged(purgeable("a", 1, rows=None)) == ["a"]


def test_so_many_files_and_bytes_are_purged_at_once() -> None:
    files = [purgeable(f"f{n}", 90 - n) for n in range(4)]
    assert purged(*files, bytes_max=20) == ["f0", "f1"]
    assert purged(*files, files_max=3) == ["f0", "f1", "f2"]
    # A file that is too large alone is purged alone.
    assert purged(*files, bytes_max=5) == ["f0"]
