"""What may not be staged: each check refuses its cases, and what it isn't about passes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest

from tests.commit.committing import FULL, begin
from tests.commit.log_of import LogOf, add, metadata, vector
from txlake.commit import validation
from txlake.commit.membership import DOMAIN
from txlake.commit.validation import RULES, validate
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import (
    Action,
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Sidecar,
    Txn,
)
from txlake.protocol.types import Field, Primitive, Struct, schema_to_string

NESTED = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "p", "type": "integer", "nullable": False, "metadata": {}},
            {
                "name": "s",
                "nullable": False,
                "metadata": {},
                "type": {
                    "type": "struct",
                    "fields": [{"name": "x", "type": "long", "nullable": False, "metadata": {}}],
                },
            },
            {
                "name": "t",
                "nullable": True,
                "metadata": {},
                "type": {
                    "type": "struct",
                    "fields": [{"name": "x", "type": "long", "nullable": False, "metadata": {}}],
                },
            },
        ],
    }
)
PARTITIONED = Metadata(id="t", schema_string=NESTED, partition_columns=("p",))
CATALOGS = msgspec.structs.replace(
    FULL, writer_features=(*(FULL.writer_features or ()), "txlakeCatalog")
)
OPEN = msgspec.structs.replace(
    FULL,
    reader_features=(*(FULL.reader_features or ()), "catalogManaged"),
    writer_features=(*(FULL.writer_features or ()), "catalogManaged", "inCommitTimestamp"),
)
VECTORS_ON = {"delta.enableDeletionVectors": "true"}


def table(settings: Metadata, *files: Add | DomainMetadata, protocol: Protocol = FULL) -> Snapshot:
    return Snapshot.empty("t").apply([protocol, settings, *files], version=3, timestamp_ms=1)


A = add("a", stats='{"numRecords": 9}')
A_DV = add("a", vector=vector(), stats='{"numRecords": 9}')
PLAIN = table(metadata(), A)
WITH_FEED = table(metadata({"delta.enableChangeDataFeed": "true"}), A)
TAKEN = msgspec.structs.replace(
    metadata({"delta.enableChangeDataFeed": "true"}),
    schema_string=schema_to_string(Struct((Field("_Change_Type", Primitive("string")),))),
)
WITH_VECTORS = table(metadata(VECTORS_ON), A)
OLD_VECTOR = table(metadata(), A_DV)
NO_FEATURES = table(metadata(), A, protocol=Protocol(min_reader_version=1, min_writer_version=2))
APPEND_ONLY = table(metadata({"delta.appendOnly": "true"}), A)
BY_P = table(PARTITIONED)


def of_p(value: str | None, **statistics: object) -> Add:
    stats = json.dumps({"numRecords": 9, **statistics})
    return msgspec.structs.replace(add("new", stats=stats), partition_values={"p": value})


def domain(name: str) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration="{}", removed=False)


GONE = A.tombstone(timestamp_ms=1)
MOVED = A.tombstone(timestamp_ms=1, data_change=False)
WITH_DOMAIN = PLAIN.apply([domain("d")])
NO_DOMAINS = msgspec.structs.replace(
    FULL,
    writer_features=tuple({*(FULL.writer_features or ())} - {"domainMetadata", "rowTracking"}),
)
LISTS_NO_APPEND_ONLY = table(
    metadata({"delta.appendOnly": "true"}),
    A,
    protocol=Protocol(min_reader_version=1, min_writer_version=7, writer_features=()),
)
MAPPED = {"delta.columnMapping.mode": "name"}
FOR_ICEBERG = metadata({**MAPPED, "delta.enableIcebergCompatV2": "true"})
BROKEN_ICEBERG = metadata({"delta.enableIcebergCompatV2": "true"})
WITH_ICEBERG = msgspec.structs.replace(
    FULL, writer_features=(*(FULL.writer_features or ()), "icebergCompatV2")
)
ICEBERG = table(FOR_ICEBERG, A, protocol=WITH_ICEBERG)
MAPS = Protocol(min_reader_version=2, min_writer_version=5)
BOTH = {"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": "true"}
MARK_AT_7 = DomainMetadata(
    domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":7}', removed=False
)
REFUSED: dict[str, tuple[str, Snapshot, Sequence[Action], str]] = {
    "a file without its number of rows, for Iceberg": (
        "iceberg_is_kept",
        ICEBERG,
        [add("b", stats="{}")],
        "file 'b': icebergCompatV2 needs numRecords",
    ),
    "a file of a table that breaks Iceberg's rules": (
        "iceberg_is_kept",
        table(BROKEN_ICEBERG, A, protocol=WITH_ICEBERG),
        [add("b", stats='{"numRecords": 9}')],
        "icebergCompatV2 needs mapped columns, found 'delta.columnMapping.mode' = 'none'",
    ),
    "Iceberg's rules on vectors": (
        "iceberg_is_kept",
        table(metadata(MAPPED), A_DV, protocol=WITH_ICEBERG),
        [FOR_ICEBERG],
        r"goes without deletion vectors, and 1 files have one.*APPLY \(PURGE\)",
    ),
    "row ids that are relied upon and not assigned": (
        "settings_are_understood",
        table(metadata(BOTH), A),
        [GONE],
        "are both 'true'.*ILLEGAL_PROPERTY_COMBINATION",
    ),
    "no path": ("paths_are_data", PLAIN, [add("")], "expected the path of a data file"),
    "the log's folder": ("paths_are_data", PLAIN, [add("_delta_log/x")], "path of a data file"),
    "a negative size": ("paths_are_data", PLAIN, [add("x", size=-1)], "size in bytes, found -1"),
    "two versions of an application": (
        "app_ids_once",
        PLAIN,
        [Txn(app_id="app", version=1), Txn(app_id="app", version=2)],
        "'app' is set to 1 and to 2",
    ),
    "a domain twice": ("domains_once", PLAIN, [domain("d"), domain("d")], "'d' is set twice"),
    "a domain without the feature": (
        "domains_once",
        NO_FEATURES,
        [domain("d")],
        "lacks the feature domainMetadata",
    ),
    "the catalog's feature alone": (
        "membership_is_whole",
        PLAIN,
        [CATALOGS],
        "txlakeCatalog and the metadata domain txlake.catalog come and go together",
    ),
    "the catalog's domain alone": (
        "membership_is_whole",
        PLAIN,
        [domain("txlake.catalog")],
        "come and go together: attach",
    ),
    "an open table without its commits' times": (
        "open_tables_stay_whole",
        table(metadata({"io.unitycatalog.tableId": "t"}), A, protocol=OPEN),
        [add("b")],
        "delta.enableInCommitTimestamps': expected 'true'",
    ),
    "an open table without its id": (
        "open_tables_stay_whole",
        table(metadata({"delta.enableInCommitTimestamps": "true"}), A, protocol=OPEN),
        [add("b")],
        "the lake's catalog sets it",
    ),
    "a file added twice": ("files_once", PLAIN, [add("b"), add("b")], "'b': it is added twice"),
    "a file removed twice": ("files_once", PLAIN, [GONE, GONE], "'a': it is removed twice"),
    "a file added and removed": (
        "files_once",
        PLAIN,
        [GONE, A],
        "added and removed with the same deletion vector",
    ),
    "a file that isn't there": (
        "removed_files_are_live",
        PLAIN,
        [add("x").tombstone(timestamp_ms=1)],
        "at version 3: file 'x': it can't be removed: it isn't in the table",
    ),
    "a file with another vector": (
        "removed_files_are_live",
        WITH_VECTORS,
        [A_DV.tombstone(timestamp_ms=1)],
        "it isn't in the table",
    ),
    "a path that is there with another vector": (
        "added_files_are_alone",
        WITH_VECTORS,
        [A_DV],
        "is in the table with another deletion vector",
    ),
    "partition values that are missing": (
        "partition_values_fit",
        BY_P,
        [add("new", stats='{"numRecords": 9}')],
        r"partition columns \[\], expected \['p'\]",
    ),
    "partition values too many": (
        "partition_values_fit",
        PLAIN,
        [of_p("1")],
        r"partition columns \['p'\], expected \[\]",
    ),
    "a partition value of another type": (
        "partition_values_fit",
        BY_P,
        [of_p("one")],
        "'new': partition column 'p': .*one",
    ),
    "a delete from an append-only table": (
        "append_only",
        APPEND_ONLY,
        [GONE],
        "only takes appends",
    ),
    "a vector without the feature": (
        "vectors_allowed",
        NO_FEATURES,
        [GONE, A_DV],
        "lacks the feature deletionVectors",
    ),
    "a vector where they are off": (
        "vectors_allowed",
        PLAIN,
        [GONE, A_DV],
        "delta.enableDeletionVectors isn't 'true'",
    ),
    "a vector without the number of rows": (
        "vectors_allowed",
        WITH_VECTORS,
        [GONE, add("a", vector=vector(), stats="{}")],
        "don't state numRecords",
    ),
    "statistics that are no JSON": ("statistics_fit", PLAIN, [add("b", stats="{")], "'b': .*JSON"),
    "statistics of another table": (
        "statistics_fit",
        PLAIN,
        [add("b", stats='{"numRecords": 1, "minValues": {"id": 1, "zzz": 1}}')],
        "columns that the table doesn't have: zzz",
    ),
    "a NULL in statistics": (
        "not_null",
        BY_P,
        [of_p("1", nullCount={"id": 1})],
        "NOT NULL of column 'id' is violated",
    ),
    "a NULL in a field": (
        "not_null",
        BY_P,
        [of_p("1", nullCount={"s": {"x": 2}})],
        r"NOT NULL of column 's\.x' is violated",
    ),
    "a NULL partition": ("not_null", BY_P, [of_p(None)], "NOT NULL of column 'p' is violated"),
    "a row id beyond the mark": (
        "row_ids_are_ours",
        PLAIN,
        [add("b", base_row_id=5)],
        "baseRowId 5 is beyond the high-water mark -1",
    ),
    "a change data file where there is no feed": (
        "change_files_fit",
        PLAIN,
        [Cdc(path="_change_data/c", partition_values={}, size=1, data_change=False)],
        "the table has no feed",
    ),
    "a change data file among the data": (
        "change_files_fit",
        WITH_FEED,
        [Cdc(path="c", partition_values={}, size=1, data_change=False)],
        "expected a path below _change_data",
    ),
    "a change data file that is data": (
        "change_files_fit",
        WITH_FEED,
        [Cdc(path="_change_data/c", partition_values={}, size=1, data_change=True)],
        "dataChange false",
    ),
    "a change data file of another partitioning": (
        "change_files_fit",
        WITH_FEED,
        [Cdc(path="_change_data/c", partition_values={"p": "1"}, size=1, data_change=False)],
        "values for the partition columns",
    ),
    "a column that the change data feed has": (
        "change_columns_are_free",
        PLAIN,
        [TAKEN],
        "column '_Change_Type' has a name of the change data feed's own",
    ),
}
FINE_CHANGES: list[Action] = [
    add("b"),
    Cdc(path="_change_data/c", partition_values={}, size=1, data_change=False),
]
FINE: dict[str, tuple[Snapshot, Sequence[Action]]] = {
    "an append": (PLAIN, [add("b")]),
    "a change data file": (WITH_FEED, FINE_CHANGES),
    "an append where another gave columns the feed's names": (table(TAKEN), [add("b")]),
    "statistics of a file again": (PLAIN, [add("a", size=11)]),
    "one version of an application twice": (
        PLAIN,
        [Txn(app_id="app", version=1), Txn(app_id="app", version=1)],
    ),
    "two domains": (PLAIN, [domain("d"), domain("e")]),
    "a domain that leaves together with its feature": (
        WITH_DOMAIN,
        [
            NO_DOMAINS,
            DomainMetadata(domain="d", configuration="", removed=True),
        ],
    ),
    "a delete": (PLAIN, [GONE]),
    "a delete by vector": (WITH_VECTORS, [GONE, A_DV]),
    "an old vector where they are off": (OLD_VECTOR, [msgspec.structs.replace(A_DV, size=11)]),
    "a compaction of an append-only table": (
        APPEND_ONLY,
        [MOVED, msgspec.structs.replace(add("b"), data_change=False)],
    ),
    "no NULL": (BY_P, [of_p("1", nullCount={"id": 0, "s": {"x": 0}, "t": {"x": 5}})]),
    "a file with NULLs that a vector may cover": (
        table(msgspec.structs.replace(PARTITIONED, configuration=VECTORS_ON)),
        [msgspec.structs.replace(of_p("1", nullCount={"id": 1}), deletion_vector=vector())],
    ),
    "NULLs that were there": (
        BY_P,
        [msgspec.structs.replace(of_p("1", nullCount={"id": 1}), data_change=False)],
    ),
    "a partition value in other words": (BY_P, [of_p("01")]),
    "no statistics": (PLAIN, [add("b")]),
    "a delete where append-only isn't a feature": (LISTS_NO_APPEND_ONLY, [GONE]),
    "statistics by names of mapped columns": (
        table(msgspec.structs.replace(PLAIN.metadata, configuration=MAPPED), protocol=MAPS),
        [add("b", stats='{"numRecords": 1, "nullCount": {"col-1": 0}}')],
    ),
    "statistics of a column that was there": (
        PLAIN,
        [msgspec.structs.replace(A, stats='{"numRecords": 9, "nullCount": {"dropped": 0}}')],
    ),
    "a row id where nobody hands them out": (NO_FEATURES, [add("b", base_row_id=5)]),
    "a file of a table that Iceberg's readers know": (
        ICEBERG,
        [add("b", stats='{"numRecords": 9}')],
    ),
    "vectors that go as Iceberg's rules come": (
        table(metadata(MAPPED), A_DV, protocol=WITH_ICEBERG),
        [A_DV.tombstone(timestamp_ms=1), FOR_ICEBERG],
    ),
    "an old vector that Iceberg's rules found": (
        table(FOR_ICEBERG, A_DV, protocol=WITH_ICEBERG),
        [msgspec.structs.replace(A_DV, base_row_id=-1)],
    ),
    "settings of a table that breaks Iceberg's rules": (
        table(BROKEN_ICEBERG, A, protocol=WITH_ICEBERG),
        [metadata({**BROKEN_ICEBERG.configuration, "mine": "x"})],
    ),
    "a row id that was handed out": (
        table(metadata(), A, MARK_AT_7),
        [add("b", base_row_id=7)],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    _, snapshot, actions, message = REFUSED[name]
    with pytest.raises(InvalidRequest, match=message) as caught:
        validate(actions, snapshot)
    assert str(caught.value).startswith("t at version 3: ")


@pytest.mark.parametrize("name", FINE)
def test_fine(name: str) -> None:
    snapshot, actions = FINE[name]
    validate(actions, snapshot)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.__name__))
def test_each_rule_refuses_a_case(rule: validation.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "RULES", [other for other in RULES if other is not rule])
    passed = []
    for name, (refused_by, snapshot, actions, _) in REFUSED.items():
        try:
            validate(actions, snapshot)
        except InvalidRequest:
            continue
        assert refused_by == rule.__name__, name
        passed.append(name)
    assert passed


@pytest.mark.parametrize(
    "action",
    [
        CommitInfo({}),
        CheckpointMetadata(version=1),
        Sidecar(path="s", size_in_bytes=1, modification_time=1),
    ],
)
def test_what_is_written_by_txlake_alone(action: Action) -> None:
    with pytest.raises(InvalidRequest, match="txlake's to write"):
        validate([action], PLAIN)


@pytest.mark.parametrize("operation", ["RESTORE", "CLONE"])
def test_an_old_vector_comes_back_where_they_are_off(operation: str) -> None:
    validate([GONE, A_DV], PLAIN, operation=operation)


def test_no_old_vector_comes_back_where_icebergs_rules_are_kept() -> None:
    with pytest.raises(InvalidRequest, match="file 'a': it has a deletion vector, and iceberg"):
        validate([GONE, A_DV], ICEBERG, operation="RESTORE")


def test_a_table_that_cant_be_written() -> None:
    iceberg = table(
        metadata({"delta.enableIcebergCompatV1": "true"}),
        protocol=Protocol(
            min_reader_version=1, min_writer_version=7, writer_features=("icebergCompatV1",)
        ),
    )
    with pytest.raises(UnsupportedFeature, match="icebergCompatV1"):
        validate([add("b")], iceberg)


def test_metadata_that_makes_the_table_unwritable() -> None:
    transaction = begin(LogOf().create())
    with pytest.raises(UnsupportedFeature, match="icebergCompatV1"):
        transaction.stage([metadata({"delta.enableIcebergCompatV1": "true"})], operation="SET")
    assert not transaction.has_changes


TIMES = {"delta.enableInCommitTimestamps": "true"}
ID = {"io.unitycatalog.tableId": "t"}


def test_another_systems_catalog_holds_a_table_from_the_first_commit_on() -> None:
    validate([OPEN, metadata({**TIMES, **ID})], Snapshot.empty("t"))


def test_an_open_table_may_leave_out_whose_it_is_when_it_is_replaced() -> None:
    before = Snapshot.empty("t").apply([OPEN, metadata({**TIMES, **ID, DOMAIN: "{}"})], version=1)
    validate([metadata({**TIMES, **ID})], before)


OPENED = PLAIN.apply(
    [
        OPEN,
        metadata({**TIMES, **ID}),
        DomainMetadata(domain=DOMAIN, configuration="{}", removed=False),
    ]
)


@pytest.mark.parametrize(
    ("actions", "before"),
    [
        ([OPEN, metadata({**TIMES, **ID})], PLAIN),
        ([OPEN, metadata(TIMES)], Snapshot.empty("t")),
        ([CATALOGS, metadata(ID)], Snapshot.empty("t")),
        ([DomainMetadata(domain=DOMAIN, configuration="{}", removed=True)], OPENED),
        ([metadata(TIMES)], PLAIN.apply([OPEN, metadata({**TIMES, **ID, DOMAIN: "{}"})])),
        ([metadata(ID)], PLAIN.apply([CATALOGS, metadata({**ID, DOMAIN: "{}"})])),
    ],
    ids=[
        *("a table that is there", "no id", "the lake's own feature", "a domain that goes"),
        *("an id that goes", "a table that isn't open"),
    ],
)
def test_who_holds_a_table_is_said_in_all_other_cases(
    actions: list[Action], before: Snapshot
) -> None:
    with pytest.raises(InvalidRequest, match="come and go together"):
        validate(actions, before)
