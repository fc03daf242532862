"""Snapshot ids, operations and summaries."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.iceberg.snapshots import (
    operation_of,
    snapshot_id,
    summary_of,
    table_uuid,
    version_of,
)


@given(version=st.integers(0, 2**43 - 1), table_id=st.uuids())
def test_an_id_tells_its_version(version: int, table_id: UUID) -> None:
    identity = snapshot_id(version, table_id)
    assert 0 <= identity < 2**63
    assert version_of(identity) == version
    assert snapshot_id(version + 1, table_id) != identity


def test_ids_are_those_of_deltas_converter() -> None:
    """By its rule: (version << 20 | low 20 bits of the id) * prime, modulo 2**64, as a long."""
    table_id = UUID("00000000-0000-0000-0000-0000000abcde")
    expected = ((7 << 20 | 0xABCDE) * 11400714819323198485) % 2**64 % 2**63
    assert snapshot_id(7, table_id) == expected


def test_a_table_id_that_is_no_uuid_has_one_all_the_same() -> None:
    assert table_uuid("00000000-0000-0000-0000-00000000ABCD").int == 0xABCD
    assert table_uuid("mine") == table_uuid("mine") != table_uuid("yours")


@pytest.mark.parametrize(
    ("adds", "removes", "changes_rows", "expected"),
    [
        (True, False, True, "append"),
        (True, True, True, "overwrite"),
        (False, True, True, "delete"),
        (True, True, False, "replace"),
        (False, False, False, "replace"),
    ],
)
def test_operations(adds: bool, removes: bool, changes_rows: bool, expected: str) -> None:
    found = operation_of(adds=adds, removes=removes, changes_rows=changes_rows)
    assert found.value == expected


def test_totals_go_on_from_the_parents() -> None:
    operation = operation_of(adds=False, removes=False, changes_rows=False)
    before = {"total-data-files": "3", "total-records": "30", "total-files-size": "300"}
    found = summary_of(operation, (), (), before, version=4, timestamp_ms=5)
    assert found["total-data-files"] == "3"
    assert found["delta-version"] == "4"
    assert found["delta-timestamp"] == "5"
