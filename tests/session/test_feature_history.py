"""What a table's log still has of a feature that is to be dropped."""

from __future__ import annotations

import pytest

from tests.transaction.log_of import LogOf, add, vector
from txlake.ddl.alter_features import check_history
from txlake.errors import InvalidRequest
from txlake.statements import DropFeature, TablePath
from txlake.transaction.checkpointing import write_checkpoint

T = TablePath("/t")
VECTORS = DropFeature(T, "DeletionVectors")
WEEK_MS = 7 * 86_400_000
PLAIN = add("a", stats='{"numRecords": 9}')
MARKED = add("a", stats='{"numRecords": 9}', vector=vector())


def _purged() -> LogOf:
    """A file gets a vector in version 1, and version 2 purges it."""
    table = LogOf().create(PLAIN)
    now = table.clock.time_ms
    table.commit(1, PLAIN.removed(timestamp_ms=now), MARKED)
    return table.commit(2, MARKED.removed(timestamp_ms=now), add("b"))


def _check(table: LogOf) -> None:
    log = table.open()
    check_history(VECTORS, log.latest(), log)


def test_a_version_with_vectors_keeps_the_feature() -> None:
    table = _purged()
    with pytest.raises(InvalidRequest, match=r"t: feature deletionVectors .* newest is 2; .*older"):
        _check(table)
    log = table.open()
    check_history(DropFeature(T, "domainMetadata"), log.latest(), log)


def test_removed_files_with_vectors_keep_the_feature_while_they_are_listed() -> None:
    log = LogOf().create(PLAIN).open()
    staged = log.latest().apply((MARKED.removed(timestamp_ms=1),))
    with pytest.raises(InvalidRequest, match="removed files that had deletion vectors"):
        check_history(VECTORS, staged, log)


def test_a_log_that_never_had_vectors_keeps_nothing() -> None:
    _check(LogOf().create(PLAIN).commit(1, add("b")))


def test_the_feature_is_free_when_the_versions_have_left_the_log() -> None:
    table = _purged()
    write_checkpoint(table.open())
    old = [path for path in table.paths if path.endswith(".json") and "_last" not in path]
    with pytest.raises(InvalidRequest, match="newest is 2"):
        _check(table.commit(3, add("c")).remove_file(*old))
    table.commit(4, add("d"), after_ms=WEEK_MS + 10_000)
    write_checkpoint(table.open())
    gone = [path for path in table.paths if "000002" in path or "000003" in path]
    _check(table.remove_file(*gone))
