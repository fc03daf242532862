"""What a table's log still has of a feature that is to be dropped."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.commit.log_of import LogOf, add, metadata, vector
from txlake.commit.checkpointing import write_checkpoint
from txlake.ddl.feature_traces import newest_trace, unlisted_vector_paths
from txlake.protocol.actions import Metadata, Remove
from txlake.protocol.column_mapping import MODE_PROPERTY
from txlake.protocol.type_widening import TYPE_CHANGES

VECTORS = "deletionVectors"
PLAIN = add("a", stats='{"numRecords": 9}')
MARKED = add("a", stats='{"numRecords": 9}', vector=vector())


def purged() -> LogOf:
    """A file gets a vector in version 1, and version 2 purges it."""
    table = LogOf().create(PLAIN)
    now = table.clock.time_ms
    table.commit(1, PLAIN.tombstone(timestamp_ms=now), MARKED)
    return table.commit(2, MARKED.tombstone(timestamp_ms=now), add("b"))


def trace(table: LogOf, feature: str = VECTORS, up_to: int = 99) -> int | None:
    return newest_trace(feature, table.open(), up_to)


def test_a_version_with_vectors_is_a_trace() -> None:
    table = purged()
    assert trace(table) == 2
    assert trace(table, up_to=1) == 1
    assert trace(table, up_to=0) is None
    assert trace(table, "vacuumProtocolCheck") is None
    assert trace(LogOf().create(PLAIN).commit(1, add("b"))) is None


def test_a_checkpoint_that_holds_vectors_is_one() -> None:
    table = LogOf().create(PLAIN)
    table.commit(1, PLAIN.tombstone(timestamp_ms=table.clock.time_ms), MARKED)
    write_checkpoint(table.open())
    old = [path for path in table.paths if path.endswith(("0.json", "0.crc"))]
    table.remove_file(*old).commit(2, add("c"))
    assert trace(table) == 1


def test_removed_files_that_a_checkpoint_lists_are_none() -> None:
    table = purged().commit(3, add("c"))
    write_checkpoint(table.open())
    old = [path for path in table.paths for version in "012" if path.endswith(f"{version}.json")]
    table.remove_file(*old)
    assert any(remove.deletion_vector for remove in table.open().latest().tombstones.values())
    assert trace(table) is None


def settings(configuration: dict[str, str], about_id: dict[str, object] | None = None) -> Metadata:
    made = metadata(configuration)
    schema = json.loads(made.schema_string or "")
    schema["fields"][0]["metadata"] = about_id or {}
    return msgspec.structs.replace(made, schema_string=json.dumps(schema))


@pytest.mark.parametrize(
    ("feature", "used"),
    [
        ("typeWidening", settings({}, {TYPE_CHANGES: [{"fromType": "integer", "toType": "long"}]})),
        ("columnMapping", settings({MODE_PROPERTY: "name"})),
        ("v2Checkpoint", settings({"delta.checkpointPolicy": "v2"})),
    ],
)
def test_metadata_that_needs_the_feature_is_one(feature: str, used: Metadata) -> None:
    table = LogOf().create(PLAIN).commit(1, used).commit(2, settings({}))
    assert trace(table, feature) == 1
    assert trace(table, feature, up_to=0) is None


def test_vectors_of_removed_files_are_listed_once() -> None:
    table = purged().open().latest()
    (path,) = unlisted_vector_paths(table, "memory://test")
    assert path.endswith(".bin")
    told = table.apply([Remove(path=path, deletion_timestamp=1, data_change=False)])
    assert unlisted_vector_paths(told, "memory://test") == []
