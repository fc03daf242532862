"""Which metadata and protocol a table may get, and what is filled in."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.commit.committing import begin
from tests.commit.log_of import LogOf, add, metadata
from txlake.commit.table_transaction import TableTransaction
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level
from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import Action, Format, Metadata, Protocol, Txn
from txlake.protocol.types import parse_schema


def column(name: str, kind: object = "long", **about: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": about}


def schema(*columns: dict[str, object]) -> str:
    return json.dumps({"type": "struct", "fields": list(columns)})


def of(*columns: dict[str, object], by: tuple[str, ...] = (), **configuration: str) -> Metadata:
    return Metadata(
        id="t",
        schema_string=schema(*columns),
        partition_columns=by,
        configuration={key.replace("__", "."): value for key, value in configuration.items()},
    )


def mapped(*columns: dict[str, object], mode: str = "name", most: str = "9") -> Metadata:
    return of(*columns, delta__columnMapping__mode=mode, delta__columnMapping__maxColumnId=most)


def about(identity: int, name: str) -> dict[str, object]:
    return {"delta.columnMapping.id": identity, "delta.columnMapping.physicalName": name}


STRUCT = {"type": "struct", "fields": [column("x"), column("X")]}
REFUSED: dict[str, tuple[Metadata, str]] = {
    "no schema": (msgspec.structs.replace(metadata(), schema_string="{"), "schemaString"),
    "not parquet": (
        msgspec.structs.replace(metadata(), format=Format(provider="orc")),
        "format 'orc'; expected parquet",
    ),
    "a column twice": (of(column("a"), column("A")), "column A is there twice"),
    "a field twice": (of(column("s", STRUCT)), r"column s\.X is there twice"),
    "partitioned by nothing there": (
        of(column("a"), by=("b",)),
        "partition column b isn't a column of the table; its columns: a",
    ),
    "partitioned twice": (
        of(column("a"), column("b"), by=("a", "a")),
        "partition column a is named twice",
    ),
    "partitioned by a struct": (
        of(column("s", {"type": "struct", "fields": [column("x")]}), column("a"), by=("s",)),
        "s of type .* can't be a partition column",
    ),
    "partitioned by a variant": (
        of(column("v", "variant"), column("a"), by=("v",)),
        "v of type .* can't be a partition column",
    ),
    "partitioned by nothing but NULL": (
        of(column("v", "void"), column("a"), by=("v",)),
        "v of type .* can't be a partition column",
    ),
    "a name that files can't have": (of(column("a b")), "`a b` contains ' '"),
    "no name": (of(column("")), "a column of the table has an empty name"),
    "one column id twice": (
        mapped(column("a", **about(1, "x")), column("b", **about(1, "y"))),
        "two columns share one column id",
    ),
    "one physical name twice": (
        mapped(column("a", **about(1, "x")), column("b", **about(2, "x"))),
        "share the physical name 'x'",
    ),
    "a property that means nothing": (of(column("a"), delta__appendOnly="maybe"), "appendOnly"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    settings, message = REFUSED[name]
    transaction = begin(LogOf())
    with pytest.raises(InvalidRequest, match=f"^t: .*{message}"):
        transaction.stage([settings], operation="CREATE TABLE")
    assert not transaction.has_changes


def test_partitioned_by_a_plain_column() -> None:
    table, _ = create(of(column("a"), column("b"), by=("b",)))
    assert table.open().latest().partition_columns == ("b",)


def create(*actions: Action) -> tuple[LogOf, TableTransaction]:
    table = LogOf()
    transaction = begin(table)
    transaction.stage(actions, operation="CREATE TABLE")
    transaction.commit()
    return table, begin(table)


@pytest.mark.parametrize(
    ("before", "after"), [("none", "name"), ("name", "name"), ("id", "id"), ("none", "none")]
)
def test_modes_of_column_mapping_that_can_follow(before: str, after: str) -> None:
    _, transaction = create(of(column("a"), delta__columnMapping__mode=before))
    settings = {"delta.columnMapping.mode": after, "mine": "1"}
    given = transaction.base.metadata
    wanted = msgspec.structs.replace(given, configuration={**given.configuration, **settings})
    transaction.stage([wanted], operation="SET TBLPROPERTIES")
    assert transaction.view.metadata.configuration["mine"] == "1"


@pytest.mark.parametrize(
    ("before", "after"),
    [("name", "id"), ("id", "name"), ("none", "id"), ("name", "none"), ("id", "none")],
)
def test_modes_of_column_mapping_that_cant_follow(before: str, after: str) -> None:
    _, transaction = create(of(column("a"), delta__columnMapping__mode=before))
    wanted = msgspec.structs.replace(
        transaction.base.metadata,
        configuration={
            **transaction.base.metadata.configuration,
            "delta.columnMapping.mode": after,
        },
    )
    with pytest.raises(InvalidRequest, match=f"from '{before}' to '{after}'"):
        transaction.stage([wanted], operation="SET TBLPROPERTIES")


def test_mapped_columns_get_ids_and_names() -> None:
    inner = {"type": "struct", "fields": [column("x")]}
    _, transaction = create(of(column("a"), column("s", inner), delta__columnMapping__mode="name"))
    settings = transaction.base.metadata
    assert settings.configuration["delta.columnMapping.maxColumnId"] == "3"
    a, s = parse_schema(settings.schema_string)
    assert a.physical_name.startswith("col-")
    assert {a.column_id, s.column_id} < {1, 2, 3}
    assert transaction.base.protocol.min_reader_version == 2


def test_columns_that_were_there_keep_their_names_and_new_ones_get_new() -> None:
    _, transaction = create(of(column("a")))
    settings = of(column("a"), delta__columnMapping__mode="name")
    transaction.stage([settings], operation="SET TBLPROPERTIES")
    (a,) = transaction.view.schema
    assert (a.physical_name, a.column_id) == ("a", 1)
    now = transaction.view.metadata
    with_b = json.loads(now.schema_string or "")
    with_b["fields"].append(column("b"))
    wanted = msgspec.structs.replace(now, schema_string=json.dumps(with_b))
    transaction.stage([wanted], operation="ADD COLUMNS")
    _, b = transaction.view.schema
    assert b.physical_name.startswith("col-")
    assert b.column_id == 2


def test_a_name_that_was_there_may_stay() -> None:
    table = LogOf()
    table.commit(0, Protocol(min_reader_version=1, min_writer_version=2), of(column("a b")))
    transaction = begin(table)
    transaction.stage([of(column("a b"), column("c"))], operation="ADD COLUMNS")
    assert transaction.view.schema.names == ("a b", "c")


def test_what_asks_for_a_protocol_is_not_stored() -> None:
    _, transaction = create(of(column("a"), delta__feature__domainMetadata="supported"))
    assert "domainMetadata" in transaction.base.features
    assert transaction.base.metadata.configuration == {}


def test_metadata_raises_the_protocol() -> None:
    _, transaction = create(of(column("a")))
    settings = of(column("a"), delta__enableDeletionVectors="true")
    transaction.stage([settings], operation="SET TBLPROPERTIES")
    assert "deletionVectors" in transaction.view.features
    assert transaction.view.protocol.min_reader_version == 3


def protocol(reader: int, writer: int, *features: str) -> Protocol:
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=() if reader == 3 else None,
        writer_features=features if writer == 7 else None,
    )


PROTOCOLS: dict[str, tuple[Protocol, str]] = {
    "below 1": (protocol(0, 2), "start at 1, found"),
    "below 1, for writers": (protocol(1, 0), "start at 1, found"),
    "reader 3 without writer 7": (protocol(3, 6), "reader version 3 needs writer version 7"),
    "writer 7 without features": (
        Protocol(min_reader_version=1, min_writer_version=7),
        "writerFeatures must be given exactly when minWriterVersion is 7",
    ),
    "features with an old writer": (
        Protocol(min_reader_version=1, min_writer_version=6, writer_features=("appendOnly",)),
        "writerFeatures must be given exactly",
    ),
    "a reader's feature that writers lack": (
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=("deletionVectors",),
            writer_features=("appendOnly", "invariants"),
        ),
        "deletionVectors in readerFeatures but not in writerFeatures",
    ),
    "a lower one": (protocol(1, 1), r"can only be raised: the table has \(1, 2\), the request"),
    "one without what the table has": (protocol(1, 7), "without appendOnly, invariants"),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_that_cant_be(name: str) -> None:
    wanted, message = PROTOCOLS[name]
    _, transaction = create(of(column("a")))
    with pytest.raises(InvalidRequest, match=message):
        transaction.stage([wanted], operation="UPGRADE PROTOCOL")


@pytest.mark.parametrize(
    ("has", "wanted"),
    [
        (protocol(3, 7, "appendOnly", "invariants"), protocol(1, 7, "appendOnly", "invariants")),
        (protocol(1, 7, "appendOnly", "invariants"), protocol(1, 2)),
    ],
    ids=["for readers", "for writers"],
)
def test_a_protocol_of_the_same_features_is_not_lowered(has: Protocol, wanted: Protocol) -> None:
    _, transaction = create(has, of(column("a")))
    with pytest.raises(InvalidRequest, match="can only be raised"):
        transaction.stage([wanted], operation="UPGRADE PROTOCOL")


def test_a_protocol_that_the_metadata_outgrows() -> None:
    transaction = begin(LogOf())
    settings = of(column("a"), delta__enableDeletionVectors="true")
    with pytest.raises(InvalidRequest, match="needs the table features deletionVectors"):
        transaction.stage([settings, protocol(1, 2)], operation="CREATE TABLE")


def test_one_of_each() -> None:
    transaction = begin(LogOf())
    lists: list[tuple[list[Action], str]] = [
        ([metadata(), metadata()], "metaData"),
        ([metadata(), protocol(1, 2), protocol(1, 2)], "protocol"),
    ]
    for twice, name in lists:
        with pytest.raises(InvalidRequest, match=f"at most one {name} action, found 2"):
            transaction.stage(twice, operation="CREATE TABLE")


def test_the_first_commit_needs_metadata() -> None:
    transaction = begin(LogOf())
    for actions in ([], [protocol(1, 2)]):
        with pytest.raises(InvalidRequest, match="the first commit needs a metaData action"):
            transaction.stage(actions, operation="WRITE")


def having(*columns: dict[str, object], **given: str) -> Metadata:
    configuration = {key.replace("__", "."): text for key, text in given.items()}
    return msgspec.structs.replace(of(*columns), configuration=configuration)


BOTH = {"delta__enableRowTracking": "true", "delta__rowTrackingSuspended": "true"}


def test_row_ids_are_not_suspended_while_they_are_relied_upon() -> None:
    with pytest.raises(InvalidRequest, match="ILLEGAL_PROPERTY_COMBINATION"):
        begin(LogOf()).stage([having(column("a"), **BOTH)], operation="CREATE TABLE")
    for one in BOTH:
        _, transaction = create(having(column("a"), **{one: "true"}))
        with pytest.raises(InvalidRequest, match="are both 'true'"):
            transaction.stage([having(column("a"), **BOTH)], operation="SET TBLPROPERTIES")


def left_by_another(*columns: dict[str, object], **given: str) -> TableTransaction:
    table = LogOf()
    table.commit(0, Protocol(min_reader_version=2, min_writer_version=5), of(*columns))
    table.commit(1, having(*columns, **given))
    return begin(table)


def test_what_another_engine_left_wrong_is_in_no_other_changes_way() -> None:
    transaction = left_by_another(column("a"), **BOTH, delta__appendOnly="maybe")
    wrong = having(column("a"), **BOTH, delta__appendOnly="maybe", mine="1")
    transaction.stage([wrong], operation="SET TBLPROPERTIES")
    with pytest.raises(InvalidRequest, match="appendOnly"):
        transaction.stage([of(column("a"), delta__appendOnly="or not")], operation="SET")
    transaction.stage([of(column("a"), mine="1")], operation="UNSET TBLPROPERTIES")
    assert transaction.view.metadata.configuration == {"mine": "1"}


def test_columns_that_another_engine_left_odd_are_in_no_other_changes_way() -> None:
    columns = column("a"), column("A"), column("b c")
    transaction = left_by_another(*columns, delta__columnMapping__mode="none")
    transaction.stage([of(*columns, mine="1")], operation="SET TBLPROPERTIES")
    with pytest.raises(InvalidRequest, match="A is there twice"):
        transaction.stage([of(*columns, column("d"))], operation="ADD COLUMNS")
    shared = column("a", **about(1, "x")), column("b", **about(1, "y"))
    by_name = {"delta__columnMapping__mode": "name"}
    transaction = left_by_another(*shared, **by_name)
    transaction.stage([having(*shared, **by_name, mine="1")], operation="SET TBLPROPERTIES")
    _, transaction = create(mapped(column("a", **about(1, "x"))))
    new = column("b", **about(9, "y")), column("c", **about(9, "z"))
    with pytest.raises(InvalidRequest, match="share one column id"):
        transaction.stage([mapped(column("a"), *new)], operation="ADD COLUMNS")


def test_another_table_takes_the_place_of_one_whose_files_all_go() -> None:
    table, transaction = create(mapped(column("a")), add("f"))
    plain = msgspec.structs.replace(of(column("a")), id="another")
    with pytest.raises(InvalidRequest, match="from 'name' to 'none'"):
        transaction.stage([plain], operation="REPLACE TABLE")
    gone = add("f").tombstone(timestamp_ms=1)
    with pytest.raises(InvalidRequest, match="from 'name' to 'none'"):
        transaction.stage([of(column("a")), gone], operation="REPLACE TABLE")
    renamed = TableTransaction(transaction.log, transaction.base)
    with pytest.raises(InvalidRequest, match="from 'name' to 'none'"):
        renamed.stage([of(column("a"))], operation="REMOVE COLUMN MAPPING", unmaps=True)
    renamed.stage([of(column("a")), gone], operation="REMOVE COLUMN MAPPING", unmaps=True)
    assert renamed.view.column_mapping_mode == "none"
    transaction.stage([plain, gone], operation="REPLACE TABLE")
    transaction.commit()
    (a,) = table.open().latest().schema
    assert (a.physical_name, a.column_id) == ("a", None)


def test_a_mode_that_is_not_understood_can_be_mended_and_nothing_written_before() -> None:
    index = {"delta__columnMapping__mode": "index"}
    transaction = left_by_another(column("a"), **index)
    transaction.stage([having(column("a"), **index, mine="1")], operation="SET TBLPROPERTIES")
    with pytest.raises(CorruptTable, match=r"columnMapping\.mode': expected none, name or id"):
        transaction.stage([add("f")], operation="WRITE")
    transaction.stage([of(column("a"), mine="1")], operation="UNSET TBLPROPERTIES")
    transaction.stage([add("f")], operation="WRITE")
    transaction.commit()


@pytest.mark.parametrize(
    "odd",
    [
        {"delta__appendOnly": "maybe"},
        {"delta__isolationLevel": "Chaos"},
        {"txlake__conflictGranularity": "page"},
    ],
)
def test_files_come_and_go_where_it_is_known_what_the_table_asks(odd: dict[str, str]) -> None:
    table = LogOf()
    table.commit(0, Protocol(min_reader_version=1, min_writer_version=2), of(column("a")), add("f"))
    table.commit(1, having(column("a"), **odd))
    for change in (add("g"), add("f").tombstone(timestamp_ms=1)):
        transaction = begin(table)
        with pytest.raises(CorruptTable, match="SET TBLPROPERTIES"):
            transaction.stage([change], operation="WRITE")
    transaction = begin(table, Level.SNAPSHOT)
    transaction.plain_read()
    transaction.stage([Txn(app_id="app", version=1)], operation="WRITE")
    assert (transaction.level is Level.SERIALIZABLE) == ("delta__isolationLevel" in odd)
    assert (transaction.granularity is Granularity.TABLE) == ("txlake__conflictGranularity" in odd)
    assert transaction.commit().version == 2
