from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.session.tables import T, environment, metadata_of, protocol_of, table
from txlake.commands.clone import FileCopy, clone
from txlake.commit.change import Change
from txlake.commit.membership import Membership, attach_actions
from txlake.ddl.environment import EVERY_ROW
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, Remove
from txlake.protocol.deletion_vectors import relative_vector, vector_path
from txlake.protocol.reach import ANYWHERE, Reach
from txlake.sql.statements import Clone, TableName

SOURCE = "file:///data/s"
TARGET = "file:///data/t"
UUID = "11111111-2222-3333-4444-555555555555"
VECTOR = relative_vector(UUID, "ab", 1, 40, 2)


def add(path: str, vector: DeletionVector | None = None, size: int = 10) -> Add:
    return Add(
        path=path,
        partition_values={},
        size=size,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":3}',
        base_row_id=7,
        default_row_commit_version=1,
        deletion_vector=vector,
    )


def source(*files: Add) -> Snapshot:
    start = table(
        "a int, b int",
        cluster_by=("a",),
        properties={"delta.columnMapping.mode": "name", "mine": "x"},
        comment="about",
    )
    return start.apply(files, version=4)


def cloned(
    statement: Clone, snapshot: Snapshot, existing: Snapshot | None = None
) -> tuple[Change, Sequence[FileCopy]]:
    copies: list[FileCopy] = []
    change = clone(
        statement,
        snapshot,
        existing,
        environment(),
        origin=Reach(SOURCE, lambda: (ANYWHERE,)),
        target_url=TARGET,
        share=lambda _: None,
        copy=copies.extend,
    )
    assert change is not None
    return change, copies


SHALLOW = Clone(table=T, source=TableName(("s",)), shallow=True)
DEEP = Clone(table=T, source=TableName(("s",)))


def adds_of(change: Change) -> list[Add]:
    return [action for action in change.actions if isinstance(action, Add)]


@pytest.mark.parametrize("statement", [SHALLOW, DEEP])
def test_a_clone_of_a_catalogs_table_is_nobodys_yet(statement: Clone) -> None:
    start = source(add("f"))
    held = start.apply(attach_actions(Membership("lake", "table", "s"), start))
    change, _ = cloned(statement, held)
    assert "txlakeCatalog" in held.features
    assert "txlakeCatalog" not in (protocol_of(change).writer_features or ())
    assert "txlake.catalog" not in Snapshot.empty("t").apply(change.actions).domains


def test_a_shallow_clone_names_the_files_of_its_source() -> None:
    start = source(add("p%20q/f"), add("g", VECTOR), add("s3://b/h", size=5))
    change, copies = cloned(SHALLOW, start)
    first, second, third = adds_of(change)
    assert first.path == f"{SOURCE}/p%20q/f"
    assert (first.stats, first.base_row_id) == ('{"numRecords":3}', None)
    assert second.deletion_vector is not None
    assert second.deletion_vector.storage_type == "p"
    assert second.deletion_vector.path_or_inline_dv == f"{SOURCE}/ab/deletion_vector_{UUID}.bin"
    assert third.path == "s3://b/h"
    assert copies == []
    assert (change.operation, change.parameters) == ("CLONE", {"source": "t", "sourceVersion": 4})
    assert change.metrics["sourceTableSize"] == 25
    assert change.affected == {
        "source_table_size": 25,
        "source_num_of_files": 3,
        "num_removed_files": 0,
        "num_copied_files": 0,
        "removed_files_size": 0,
        "copied_files_size": 0,
    }


def test_a_clone_has_its_sources_definition_under_an_id_of_its_own() -> None:
    start = source()
    change, _ = cloned(SHALLOW, start)
    metadata = metadata_of(change)
    assert metadata.schema_string == start.metadata.schema_string
    assert metadata.configuration == start.metadata.configuration
    assert metadata.description is None
    assert metadata.id != start.metadata.id
    assert protocol_of(change) == start.protocol
    found = Snapshot.empty("t").apply(change.actions)
    assert found.domains == start.domains


def test_a_clone_takes_features_but_turns_none_on() -> None:
    legacy = table("a int", properties={"delta.enableDeletionVectors": "false"})
    del legacy.metadata.configuration["delta.enableDeletionVectors"]
    change, _ = cloned(SHALLOW, legacy)
    assert metadata_of(change).configuration == {}
    assert protocol_of(change) == legacy.protocol
    # A table whose files have deletion vectors, though it makes no new ones.
    off = source(add("g", VECTOR))
    off.metadata.configuration["delta.enableDeletionVectors"] = "false"
    change, _ = cloned(SHALLOW, off)
    assert "deletionVectors" in (protocol_of(change).reader_features or ())


def test_a_deep_clone_has_files_of_its_own() -> None:
    start = source(
        add("day=1/f.parquet"), add("g", VECTOR), add("h", VECTOR), add("s3://b/day=2/i%20.parquet")
    )
    change, copies = cloned(DEEP, start)
    targets = {copy.source: copy.target for copy in copies}
    assert set(targets) == {
        f"{SOURCE}/day=1/f.parquet",
        f"{SOURCE}/g",
        f"{SOURCE}/h",
        "s3://b/day=2/i%20.parquet",
        f"{SOURCE}/ab/deletion_vector_{UUID}.bin",
    }
    first, second, third, fourth = adds_of(change)
    assert first.path == targets[f"{SOURCE}/day=1/f.parquet"]
    assert first.path.startswith("day=1/")
    assert first.path != "day=1/f.parquet"
    assert second.deletion_vector == third.deletion_vector
    assert second.deletion_vector is not None
    assert (
        vector_path(second.deletion_vector, TARGET)
        == targets[f"{SOURCE}/ab/deletion_vector_{UUID}.bin"]
    )
    assert fourth.path.startswith("day=2/")
    assert fourth.path.endswith("i%20.parquet")
    assert targets["s3://b/day=2/i%20.parquet"].endswith("i .parquet")
    assert change.metrics["numCopiedFiles"] == 4


def test_replacing_keeps_what_both_have() -> None:
    start = source(add("f"), add("g"))
    change, _ = cloned(SHALLOW, source(add("f")))
    before = Snapshot.empty("t").apply(change.actions, version=0)
    with_more = before.apply([add("mine")], version=1)
    replacing = Clone(table=T, source=TableName(("s",)), shallow=True, mode="or_replace")
    change, _ = cloned(replacing, start, with_more)
    assert [one.path for one in adds_of(change)] == [f"{SOURCE}/g"]
    removes = [action.path for action in change.actions if isinstance(action, Remove)]
    assert removes == ["mine"]
    assert change.reads == (EVERY_ROW,)


def test_what_cannot_be_cloned() -> None:
    start = source()
    with pytest.raises(InvalidRequest, match="t: the table exists already"):
        cloned(SHALLOW, start, start)
    existing = Clone(table=T, source=TableName(("s",)), mode="if_not_exists")
    assert (
        clone(
            existing,
            start,
            start,
            environment(),
            origin=Reach(SOURCE),
            target_url=TARGET,
            share=lambda _: None,
            copy=lambda copies: None,
        )
        is None
    )
    with pytest.raises(InvalidRequest, match="onto itself"):
        clone(
            DEEP,
            start,
            None,
            environment(),
            origin=Reach(SOURCE),
            target_url=SOURCE,
            share=lambda _: None,
            copy=lambda copies: None,
        )
    unmapped = Clone(
        table=T, source=TableName(("s",)), properties=(("delta.columnMapping.mode", "none"),)
    )
    with pytest.raises(InvalidRequest, match="column mapping mode, 'name'; found 'none'"):
        cloned(unmapped, start)
