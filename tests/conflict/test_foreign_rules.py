"""What another engine's commit may not do, each rule with its cases; and what passes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec
import pytest
from pyroaring import BitMap64

from txlake.conflict import foreign_rules
from txlake.conflict.foreign_rules import RULES, ForeignCommit, Refusal, find_refusal
from txlake.errors import CorruptTable
from txlake.log.snapshot import ROW_TRACKING_DOMAIN, Snapshot
from txlake.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
)

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
)
FEATURES = ("catalogManaged", "deletionVectors", "domainMetadata", "inCommitTimestamp")
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("catalogManaged", "deletionVectors"),
    writer_features=FEATURES,
)
TRACKING = msgspec.structs.replace(PROTOCOL, writer_features=(*FEATURES, "rowTracking"))
CONFIGURATION = {"delta.enableInCommitTimestamps": "true", "own": "1"}
METADATA = Metadata(id="t", schema_string=SCHEMA, configuration=CONFIGURATION)
TRACKED = {**CONFIGURATION, "delta.enableRowTracking": "true"}
KEPT = frozenset({"own", "maker", "txlake.catalog"})
MAY_GO = frozenset({"maker"})
POSITIONS: Mapping[str, BitMap64] = {
    "none": BitMap64(),
    "1": BitMap64([1]),
    "1,2": BitMap64([1, 2]),
    "2,3": BitMap64([2, 3]),
    "1,2,3": BitMap64([1, 2, 3]),
}


class Vectors:
    """The vectors of POSITIONS; others are gone."""

    def of(self, vector: DeletionVector) -> BitMap64:
        found = POSITIONS.get(vector.path_or_inline_dv)
        if found is None:
            raise CorruptTable(f"vector {vector.path_or_inline_dv} is missing")
        return found

    def of_id(self, vector_id: str) -> BitMap64:
        raise AssertionError("ids say nothing of a foreign commit's vectors")


def vector(name: str, rows: int | None = None) -> DeletionVector:
    """A vector of POSITIONS, or one that isn't there."""
    count = len(POSITIONS.get(name, ())) if rows is None else rows
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, size_in_bytes=9, cardinality=count
    )


def file(
    path: str,
    deleted: str | None = None,
    *,
    rows: int | None = 10,
    base: int | None = None,
    since: int | None = None,
    says: int | None = None,
) -> Add:
    """A file of ten rows; `deleted` names its vector, which may say another number of rows."""
    return Add(
        path=path,
        partition_values={},
        size=1,
        modification_time=1,
        data_change=True,
        stats=None if rows is None else json.dumps({"numRecords": rows}),
        deletion_vector=None if deleted is None else vector(deleted, says),
        base_row_id=base,
        default_row_commit_version=since,
    )


def mark(value: int) -> DomainMetadata:
    """The high-water mark of row ids."""
    text = json.dumps({"rowIdHighWaterMark": value})
    return DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=text, removed=False)


def info(time: object = 2000, txn: object = "x", operation: str = "WRITE") -> CommitInfo:
    return CommitInfo({"inCommitTimestamp": time, "txnId": txn, "operation": operation})


def table(
    *actions: Action, protocol: Protocol = PROTOCOL, metadata: Metadata = METADATA
) -> Snapshot:
    """The table at version 3, of time 1000."""
    return Snapshot.empty("t").apply(
        [info(1000), protocol, metadata, *actions], version=3, timestamp_ms=1
    )


def settings(**changes: object) -> Metadata:
    return msgspec.structs.replace(METADATA, **changes)


def without(feature: str) -> Protocol:
    left = tuple(name for name in FEATURES if name != feature)
    return msgspec.structs.replace(PROTOCOL, writer_features=left)


PLAIN = table(file("a"), file("v", "1,2"))
ROWS = table(
    file("a", base=0, since=1),
    mark(9),
    protocol=TRACKING,
    metadata=settings(configuration=TRACKED),
)
UNNUMBERED = table(file("a"), protocol=TRACKING)
LOST = table(file("w", "gone", says=1))
V_GONE = file("v", "1,2").tombstone(timestamp_ms=5)
A_GONE = file("a", base=0, since=1).tombstone(timestamp_ms=5)
OTHER_CATALOG = DomainMetadata(domain="txlake.catalog", configuration="{}", removed=False)


def identity(mark: int | None) -> str:
    """A schema with an identity column, whose values were given up to the mark."""
    told: dict[str, object] = {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": False,
    }
    if mark is not None:
        told["delta.identity.highWaterMark"] = mark
    column = {"name": "id", "type": "long", "nullable": True, "metadata": told}
    return json.dumps({"type": "struct", "fields": [column]})


BROKEN = identity(None).replace('"delta.identity.step": 1', '"delta.identity.step": 0')
WIDER = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": "long", "nullable": True, "metadata": {}}
            for name in ("id", "more")
        ],
    }
)


# Name: (the rule, the table, the commit's actions, what the reason says).
REFUSED: dict[str, tuple[str, Snapshot, tuple[Action, ...], str]] = {
    "no commitInfo": ("commit_info_is_complete", PLAIN, (file("b"),), "found 0"),
    "commitInfo later": (
        "commit_info_is_complete",
        PLAIN,
        (file("b"), info()),
        "as the first action",
    ),
    "two of them": ("commit_info_is_complete", PLAIN, (info(), info()), "found 2"),
    "no txnId": ("commit_info_is_complete", PLAIN, (info(txn=None),), "expected a txnId"),
    "an empty txnId": ("commit_info_is_complete", PLAIN, (info(txn=""),), "expected a txnId"),
    "no time": ("commit_info_is_complete", PLAIN, (info(None),), "expected an inCommitTimestamp"),
    "a time in words": ("commit_info_is_complete", PLAIN, (info("now"),), "found 'now'"),
    "another time": (
        "commit_info_is_complete",
        PLAIN,
        (info(2001),),
        "at 2000, its commitInfo 2001",
    ),
    "an older time": ("timestamp_increases", PLAIN, (info(900),), "900 isn't later than 1000"),
    "the same time": ("timestamp_increases", PLAIN, (info(1000),), "1000 isn't later than 1000"),
    "two protocols": ("settings_set_once", PLAIN, (info(), PROTOCOL, PROTOCOL), "one protocol"),
    "two metaData": ("settings_set_once", PLAIN, (info(), METADATA, METADATA), "one metaData"),
    "a feature dropped": (
        "features_not_dropped",
        PLAIN,
        (info(), without("inCommitTimestamp")),
        "drops the table features inCommitTimestamp",
    ),
    "catalogManaged dropped": (
        "features_not_dropped",
        PLAIN,
        (
            info(),
            Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=("deletionVectors",),
                writer_features=FEATURES[1:],
            ),
        ),
        "catalogManaged",
    ),
    "a lower protocol": (
        "features_not_dropped",
        PLAIN,
        (info(), Protocol(min_reader_version=2, min_writer_version=7, writer_features=FEATURES)),
        r"lowers the protocol from \(3, 7\) to \(2, 7\)",
    ),
    "another table's metaData": (
        "table_identity_unchanged",
        PLAIN,
        (info(), settings(id="u")),
        "is of table u, and this is t",
    ),
    "other partitions": (
        "table_identity_unchanged",
        PLAIN,
        (info(), settings(partition_columns=("id",))),
        "partitions by",
    ),
    "the catalog's property": (
        "table_identity_unchanged",
        PLAIN,
        (info(), settings(configuration={**CONFIGURATION, "own": "2"})),
        "property 'own'",
    ),
    "the catalog's property gone": (
        "table_identity_unchanged",
        PLAIN,
        (info(), settings(configuration={"delta.enableInCommitTimestamps": "true"})),
        "property 'own'",
    ),
    "the catalog's property changed that may go": (
        "table_identity_unchanged",
        table(metadata=settings(configuration={**CONFIGURATION, "maker": "1"})),
        (info(), settings(configuration={**CONFIGURATION, "maker": "2"})),
        "property 'maker'",
    ),
    "the catalog's property come that may go": (
        "table_identity_unchanged",
        PLAIN,
        (info(), settings(configuration={**CONFIGURATION, "maker": "1"})),
        "property 'maker'",
    ),
    "the catalog's domain": (
        "table_identity_unchanged",
        PLAIN,
        (info(), OTHER_CATALOG),
        "domain 'txlake.catalog'",
    ),
    "a vector that isn't there": (
        "vectors_are_readable",
        PLAIN,
        (info(), file("b", "gone")),
        "'b': its deletion vector can't be read: vector gone is missing",
    ),
    "a vector that miscounts": (
        "vectors_are_readable",
        PLAIN,
        (info(), file("b", "1,2", says=3)),
        "has 2 rows, and says that it has 3",
    ),
    "deleted rows that are back": (
        "deleted_rows_stay_deleted",
        PLAIN,
        (info(), V_GONE, file("v", "2,3")),
        "'v': 1 rows that are deleted at version 3 are back",
    ),
    "a vector that is gone": (
        "deleted_rows_stay_deleted",
        PLAIN,
        (info(), V_GONE, file("v")),
        "2 rows that are deleted",
    ),
    "a vector after one that isn't there": (
        "deleted_rows_stay_deleted",
        LOST,
        (info(), file("w", "gone", says=1).tombstone(timestamp_ms=5), file("w", "1,2")),
        "'w': its deletion vector can't be read: vector gone is missing",
    ),
    "no row id": ("row_ids_are_new", ROWS, (info(), file("b")), "expected a baseRowId"),
    "no commit version": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", base=10), mark(19)),
        "expected a baseRowId and a defaultRowCommitVersion",
    ),
    "a commit version alone": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", since=4)),
        "expected a baseRowId and a defaultRowCommitVersion",
    ),
    "ids of other rows": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", base=5, since=4), mark(14)),
        "baseRowId 5 isn't beyond 9",
    ),
    "another version's": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", base=10, since=3), mark(19)),
        "expected defaultRowCommitVersion 4, found 3",
    ),
    "ids twice in one commit": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", base=10, since=4), file("c", base=15, since=4), mark(24)),
        "'b' and 'c' have row ids in common",
    ),
    "a mark that is too low": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", base=10, since=4), mark(18)),
        "ids up to 19 are given, and the high-water mark is 18",
    ),
    "no new mark": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", base=10, since=4)),
        "the high-water mark is 9",
    ),
    "a mark that goes back": ("row_ids_are_new", ROWS, (info(), mark(3)), "goes back from 9 to 3"),
    "a mark that is none": (
        "row_ids_are_new",
        ROWS,
        (info(), DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration="?", removed=False)),
        "expected a rowIdHighWaterMark",
    ),
    "an unknown number of rows": (
        "row_ids_are_new",
        ROWS,
        (info(), file("b", base=10, since=4, rows=None), mark(19)),
        "don't state numRecords",
    ),
    "statistics that can't be read": (
        "row_ids_are_new",
        ROWS,
        (info(), msgspec.structs.replace(file("b", base=10, since=4), stats="?"), mark(19)),
        "statistics",
    ),
    "new ids in a restore, no mark": (
        "row_ids_are_new",
        ROWS,
        (info(operation="RESTORE"), file("z", base=10, since=4)),
        "ids up to 19 are given, and the high-water mark is 9",
    ),
    "others' ids for a file without": (
        "row_ids_are_new",
        table(file("a"), mark(9), protocol=TRACKING),
        (info(operation="RESTORE"), A_GONE, file("a", base=4, since=1)),
        "baseRowId 4 isn't beyond 9",
    ),
    "a listed file's ids changed": (
        "row_ids_are_new",
        ROWS,
        (info(), A_GONE, file("a", "1", base=10, since=4), mark(19)),
        "have the ids from 0 .version 1., and it lists them from 10",
    ),
    "row tracking on, files without": (
        "row_ids_are_new",
        UNNUMBERED,
        (info(), settings(configuration=TRACKED)),
        "1 files have no row ids",
    ),
}
REFUSED |= {
    "identity values given": (
        "identity_marks_unchanged",
        table(metadata=settings(schema_string=identity(None))),
        (info(), settings(schema_string=identity(7))),
        "values of the identity column",
    ),
    "identity values given again": (
        "identity_marks_unchanged",
        table(metadata=settings(schema_string=identity(7))),
        (info(), settings(schema_string=identity(3))),
        "values of the identity column",
    ),
    "identity that nobody can follow": (
        "identity_marks_unchanged",
        PLAIN,
        (info(), settings(schema_string=BROKEN)),
        "delta.identity.step",
    ),
}
FINE: dict[str, tuple[Snapshot, tuple[Action, ...]]] = {
    "the catalog's property gone that may": (
        table(metadata=settings(configuration={**CONFIGURATION, "maker": "1"})),
        (info(), settings()),
    ),
    "an append": (PLAIN, (info(), file("b"))),
    "more rows deleted": (PLAIN, (info(), file("a").tombstone(timestamp_ms=5), file("a", "1"))),
    "still more rows deleted": (PLAIN, (info(), V_GONE, file("v", "1,2,3"))),
    "a file listed anew as it was, its vector lost": (
        LOST,
        (info(), msgspec.structs.replace(file("w", "gone", says=1), stats=None)),
    ),
    "other partitions of an empty table": (
        table(),
        (info(), settings(partition_columns=("id",))),
    ),
    "another column": (PLAIN, (info(), settings(schema_string=WIDER))),
    "a property": (PLAIN, (info(), settings(configuration={**CONFIGURATION, "more": "1"}))),
    "a feature": (
        PLAIN,
        (info(), msgspec.structs.replace(PROTOCOL, writer_features=(*FEATURES, "appendOnly"))),
    ),
    "a restore": (PLAIN, (info(operation="RESTORE"), V_GONE, file("v"))),
    "new ids": (ROWS, (info(), file("b", base=10, since=4), mark(19))),
    "ids one after the other": (
        ROWS,
        (info(), file("c", base=20, since=4), file("b", base=10, since=4), mark(29)),
    ),
    "ids for a file that had none": (
        UNNUMBERED,
        (info(), settings(configuration=TRACKED), A_GONE, file("a", base=0, since=4), mark(9)),
    ),
    "ids of new files alone, while they aren't tracked": (
        UNNUMBERED,
        (info(), file("b", base=0, since=4), mark(9)),
    ),
    "a table that was tracked before, and not wholly": (
        table(file("a"), mark(9), protocol=TRACKING, metadata=settings(configuration=TRACKED)),
        (info(), file("b", base=10, since=4), mark(19)),
    ),
    "a listed file": (ROWS, (info(), A_GONE, file("a", "1", base=0, since=1))),
    "an old file back": (ROWS, (info(operation="RESTORE"), file("z", base=4, since=0))),
    "suspended": (
        table(
            protocol=TRACKING,
            metadata=settings(
                configuration={**CONFIGURATION, "delta.rowTrackingSuspended": "true"}
            ),
        ),
        (info(), file("b")),
    ),
    "tracked from now on": (
        table(protocol=TRACKING),
        (info(), settings(configuration=TRACKED), file("b", base=0, since=4), mark(9)),
    ),
}


def judge(before: Snapshot, actions: tuple[Action, ...]) -> str | None:
    """Why not, as `refusal`."""
    found = refusal(before, actions)
    return None if found is None else found.reason


def refusal(before: Snapshot, actions: tuple[Action, ...]) -> Refusal | None:
    """Why not, of a commit that says it happened at 2000 where nothing else is said."""
    told = next(
        (one.number("inCommitTimestamp") for one in actions if isinstance(one, CommitInfo)), 0
    )
    time = 2000 if told is None or told > 2000 else told
    return find_refusal(
        ForeignCommit(
            version=4, actions=actions, timestamp_ms=time, catalog_owned=KEPT, removable=MAY_GO
        ),
        before,
        Vectors(),
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_the_catalogs_is_refused_however_often_it_is_tried(name: str) -> None:
    rule, before, actions, _ = REFUSED[name]
    found = refusal(before, actions)
    assert found is not None
    assert found.is_permanent == (rule in {"table_identity_unchanged", "identity_marks_unchanged"})


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    _, before, actions, reason = REFUSED[name]
    found = judge(before, actions)
    assert found is not None
    assert re.search(reason, found), found


@pytest.mark.parametrize("name", FINE)
def test_fine(name: str) -> None:
    assert judge(*FINE[name]) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.__name__))
def test_each_rule_refuses_what_no_other_does(
    rule: foreign_rules.Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_rules, "RULES", [other for other in RULES if other is not rule])
    passed = []
    for name, (refused_by, before, actions, _) in REFUSED.items():
        if judge(before, actions) is None:
            assert refused_by == rule.__name__, name
            passed.append(name)
    assert passed
