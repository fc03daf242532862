"""What a conflict says of itself: all that is known, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.conflict.cases import IN_1, TABLE, A, add, gone, ours, winner
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import Finding, conflict_from_finding, is_futile, message_of
from txlake.errors import ConcurrentAppendException, Conflict, Evidence
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, Remove

PARTITIONED = CheckContext(base=TABLE, metadata=TABLE.metadata, protocol=TABLE.protocol)


def unpartitioned() -> CheckContext:
    plain = msgspec.structs.replace(TABLE.metadata, partition_columns=())
    base = Snapshot.empty("t").apply([TABLE.protocol, plain], version=5, timestamp_ms=1)
    return replace(PARTITIONED, base=base, metadata=plain)


def message(
    *files: Add | Remove, context: CheckContext = PARTITIONED, at_ms: int | None = None
) -> str:
    return message_of(
        conflict_from_finding(
            Finding(ConcurrentAppendException, "added rows", files=files, advice="Again."),
            "rows_added",
            ours(),
            winner(6, added=(IN_1,), timestamp_ms=at_ms),
            context,
        )
    )


def test_without_a_condition_or_files_none_are_told() -> None:
    assert message() == (
        "t: this transaction read version 5; since then version 6 (WRITE) added rows "
        "(rule rows_added; isolation write_serializable; a plain retry can succeed). Again."
    )


def test_the_first_files_partition_is_told() -> None:
    assert "added rows [p=1] (rule" in message(A, add("x", "2"))
    assert "added rows [p=null] (rule" in message(add("x", None))


def test_a_table_without_partitions_has_none_to_tell() -> None:
    assert "added rows (rule" in message(A, context=unpartitioned())


def test_a_remove_that_does_not_say_its_partition() -> None:
    silent = msgspec.structs.replace(gone(A), partition_values=None)
    assert "added rows (rule" in message(silent)


@pytest.mark.parametrize("at_ms", [10**20, -(10**20)])
def test_a_time_that_is_none_is_left_out(at_ms: int) -> None:
    assert "since then version 6 (WRITE) added" in message(at_ms=at_ms)


@pytest.mark.parametrize(
    ("retry", "winning_version", "wanted"),
    [(True, 1, False), (True, -1, False), (False, 0, False), (False, -1, True)],
)
def test_work_is_futile_where_nobody_changed_what_it_looks_at(
    retry: bool, winning_version: int, wanted: bool
) -> None:
    facts = Evidence(table="t", read_version=-1, winning_version=winning_version, retry=retry)
    assert is_futile(Conflict("lost", facts)) is wanted
    assert is_futile(Conflict("lost")) is False
