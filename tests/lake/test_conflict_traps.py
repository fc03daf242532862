"""Where checks for conflicts go wrong elsewhere: values compared as text, bounds trusted too far.

Asked of `txlake.Log`. The data files aren't there, so that what bounds leave open stays in doubt.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from msgspec.structs import replace
from pyroaring import BitMap64

import txlake
from tests.lake.log_tables import Line, actions_at, add, new_log, remove, settings, table
from txlake.datafiles.vectors import load_vector
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    Conflict,
    MetadataChangedException,
)
from txlake.lake.log import Log
from txlake.protocol import deletion_vectors as codec
from txlake.protocol.actions import encode_actions


def ends(log: Log, condition: str | None, theirs: Line, *ours: Line) -> type[Conflict] | None:
    """How a transaction ends that read by the condition, under Serializable."""
    transaction = log.start_transaction(isolation="serializable")
    transaction.read(condition)
    log.start_transaction().commit([theirs])
    try:
        transaction.commit(list(ours) or [_ours(log)])
    except Conflict as error:
        return type(error)
    return None


def _ours(log: Log) -> Line:
    line = add("ours")
    line["add"]["partitionValues"] = dict.fromkeys(log.snapshot().partition_columns)
    return line


_DAY = "TIMESTAMP '2026-01-05'"


@pytest.mark.parametrize(
    ("kind", "condition", "same", "other"),
    [
        ("integer", "p = 1", "01", "10"),
        ("integer", "p < 5", "+4", "10"),
        ("string", "p = '1'", "1", "01"),
        ("date", "p = DATE '2026-01-05'", "2026-01-05", "2026-01-06"),
        ("timestamp", "p = TIMESTAMP '2026-01-05 01:00:00+01:00'", "2026-01-05 00:00:00", None),
        ("timestamp", f"p < {_DAY}", "2026-01-04T23:59:59.999999Z", "2026-01-05T00:00:00.000000Z"),
        # Without a zone the value may be of any, up to 18 hours from UTC.
        ("timestamp", f"p < {_DAY}", "2026-01-05", "2026-01-05 18:00:00"),
        ("timestamp", f"p < {_DAY}", "2026-01-05 17:59:59.999999", "2026-01-06"),
        ("boolean", "p = true", "true", "false"),
        ("decimal(5,2)", "p = 1.5", "1.50", "1.51"),
        ("double", "p = 0.0", "-0.0", "0.1"),
        ("double", "p > 1e300", "NaN", "1.0"),
        ("string", "p IS NULL", None, "__HIVE_DEFAULT_PARTITION__"),
        ("integer", "p IS NULL", "", "0"),
        ("string", "p <=> NULL", None, "x"),
    ],
)
def test_partition_values_are_compared_by_their_type(
    kind: str, condition: str, same: str | None, other: str | None
) -> None:
    for value, conflict in ((same, ConcurrentAppendException), (other, None)):
        log = table(columns=("id:long", f"p:{kind}"), by=("p",))
        assert ends(log, condition, add("a", p=value)) is conflict, value


def with_stats(low: object, high: object, column: str = "v", **more: object) -> Line:
    line = add("theirs")
    stats = {"numRecords": 2, "minValues": {column: low}, "maxValues": {column: high}, **more}
    line["add"]["stats"] = json.dumps(stats)
    return line


@pytest.mark.parametrize(
    ("kind", "condition", "theirs", "conflicts"),
    [
        ("long", "v = 5", with_stats(1, 4), False),
        ("long", "v = 5", with_stats(1, 4, column="other"), True),
        ("long", "v = 5", add("theirs"), True),
        ("long", "v IS NULL", with_stats(1, 4, nullCount={"v": 0}), False),
        ("long", "v IS NULL", with_stats(1, 4), True),
        ("double", "v > 100", with_stats(1.0, 4.0), True),  # NaN is greater, and in no bound
        ("double", "v < 0", with_stats(1.0, 4.0), False),
        ("double", "v = 0.0", with_stats(-0.0, -0.0), True),
        ("double", "v = -0.0", with_stats(0.0, 0.0), True),
        ("string", f"v = '{'a' * 40}'", with_stats("a" * 32, "a" * 32), True),
        ("string", "v = 'b'", with_stats("a" * 32, "a" * 32 + "\uffff"), False),
        ("string", "v LIKE 'b%'", with_stats("a", "az"), False),
        ("string", "v LIKE 'a%'", with_stats("a", "az"), True),
        ("date", "v = DATE '2026-01-05'", with_stats("2026-01-05", "2026-01-05"), True),
        ("timestamp", "v = TIMESTAMP '2026-01-05 00:00:00.0009Z'", None, True),  # bounds are cut
        ("long", "v IN (5, 9)", with_stats(6, 8), False),
        ("long", "NOT (v BETWEEN 1 AND 9)", with_stats(1, 9), False),
        ("long", "abs(v) = 5", with_stats(1, 4), True),
        ("long", "abs(v) = 5 AND v > 4", with_stats(1, 4), False),
        ("long", "rand() < 0.5", with_stats(1, 4), True),
    ],
)
def test_bounds_remove_doubt_and_nothing_else(
    kind: str, condition: str, theirs: Line | None, conflicts: bool
) -> None:
    time = "2026-01-05T00:00:00.000Z"
    log = table(columns=(f"v:{kind}", "other:long"))
    found = ends(log, condition, theirs or with_stats(time, time))
    assert found is (ConcurrentAppendException if conflicts else None)


def test_a_column_of_another_physical_name() -> None:
    schema = {
        "type": "struct",
        "fields": [
            {
                "name": "v",
                "type": "long",
                "nullable": True,
                "metadata": {
                    "delta.columnMapping.id": 1,
                    "delta.columnMapping.physicalName": "col-1",
                },
            }
        ],
    }
    mapped = settings(delta__columnMapping__mode="name", delta__columnMapping__maxColumnId="1")
    mapped["metaData"]["schemaString"] = json.dumps(schema)
    for condition, column, conflict in (
        ("v = 5", "col-1", None),
        ("v = 2", "col-1", ConcurrentAppendException),
        ("v = 5", "v", ConcurrentAppendException),  # no statistic of the column
    ):
        log = new_log()
        log.start_transaction().commit([mapped])
        assert ends(log, condition, with_stats(1, 4, column=column)) is conflict


def test_a_winner_that_changed_the_schema() -> None:
    for isolation in ("snapshot", "write_serializable", "serializable"):
        log = table()
        ours = log.start_transaction(isolation=isolation)
        log.start_transaction().commit([settings("id:long", "p:string", "new:long")])
        with pytest.raises(MetadataChangedException):
            ours.commit([add("ours")])


# Vectors, whoever wrote them


def vector(*positions: int) -> dict[str, object]:
    """An inline one, as Delta Spark writes small ones."""
    found = codec.inline(BitMap64(positions))
    return {
        "storageType": found.storage_type,
        "pathOrInlineDv": found.path_or_inline_dv,
        "sizeInBytes": found.size_in_bytes,
        "cardinality": found.cardinality,
    }


def marked(*positions: int, records: int = 10) -> list[Line]:
    """The file with these rows deleted."""
    line = add("a%20b")
    line["add"]["stats"] = json.dumps({"numRecords": records})
    line["add"]["deletionVector"] = vector(*positions)
    return [remove("a%20b"), line]


def one_file(*, row_tracking: bool = False) -> Log:
    log = new_log()
    tracks = str(row_tracking).lower()
    made = settings("id:long", delta__enableDeletionVectors="true", delta__enableRowTracking=tracks)
    line = add("a%20b")
    line["add"]["stats"] = json.dumps({"numRecords": 10})
    log.start_transaction().commit([made, line])
    return log


def deleted(log: Log) -> list[int]:
    """The rows that the newest version deletes in its one file."""
    [file] = log._log.latest().files.adds()
    assert file.deletion_vector is not None
    return list(load_vector(log._log.store, file.deletion_vector))


@pytest.mark.parametrize("isolation", ["snapshot", "write_serializable", "serializable"])
def test_vectors_of_others_unite(isolation: str) -> None:
    log = one_file()
    transactions = [log.start_transaction(isolation=isolation) for _ in range(3)]
    for number, transaction in enumerate(transactions):
        transaction.read("id = -1", files=False)
        committed = transaction.commit(marked(number, number + 4), operation="DELETE")
        assert committed.version == number + 1
    assert deleted(log) == [0, 1, 2, 4, 5, 6]
    for before, after in ((1, 2), (2, 3)):
        [listed] = [one["add"] for one in actions_at(log, before) if "add" in one]
        [gone] = [one["remove"] for one in actions_at(log, after) if "remove" in one]
        assert gone["deletionVector"] == listed["deletionVector"]


def test_a_row_in_two_vectors_is_a_conflict_that_names_it() -> None:
    log = one_file()
    first, second = log.start_transaction(), log.start_transaction()
    for transaction in (first, second):
        transaction.read("id = -1", files=False)
    first.commit(marked(3, 4, 5), operation="DELETE")
    with pytest.raises(ConcurrentDeleteDeleteException, match="2 rows of a b") as caught:
        second.commit(marked(4, 5, 6), operation="DELETE")
    assert caught.value.evidence is not None
    assert caught.value.evidence.rows == ({"file": "a b", "count": 2, "positions": (4, 5)},)


def test_the_last_rows_of_a_file_take_the_file_along() -> None:
    log = one_file()
    first, second = log.start_transaction(), log.start_transaction()
    for transaction in (first, second):
        transaction.read("id = -1", files=False)
    first.commit(marked(*range(6)), operation="DELETE")
    second.commit(marked(*range(6, 10)), operation="DELETE")
    assert log.snapshot().files().num_rows == 0


def test_united_rows_keep_their_ids() -> None:
    log = one_file(row_tracking=True)
    base = [row["base_row_id"] for row in log.snapshot().files().to_pylist()]
    first, second = log.start_transaction(), log.start_transaction()
    for transaction in (first, second):
        transaction.read("id = -1", files=False)
    new = add("new")
    bounds = {"minValues": {"id": 1}, "maxValues": {"id": 3}}
    new["add"]["stats"] = json.dumps({"numRecords": 3, **bounds})
    newer = {"add": {**new["add"], "path": "newer"}}
    first.commit([*marked(1), new], operation="UPDATE")
    second.commit([*marked(2), newer], operation="UPDATE")
    ids = {row["path"]: row["base_row_id"] for row in log.snapshot().files().to_pylist()}
    assert ids == {"a b": base[0], "new": 10, "newer": 13}


@pytest.mark.parametrize(("row", "conflicts"), [(4, False), (9, True)])
def test_a_vector_that_delta_spark_wrote_in_between(
    golden: Path, tmp_path: Path, row: int, conflicts: bool
) -> None:
    place = tmp_path / "t"
    shutil.copytree(golden / "delta-kernel-rs" / "table-with-dv-small", place)
    log = txlake.Log(str(place))
    ours = log.start_transaction(read_version=0)  # version 1 deletes rows 0 and 9
    ours.read(f"value = {row}")
    [file] = log._log.snapshot(0).files.adds()
    line = json.loads(encode_actions([replace(file, data_change=True)]))
    line["add"]["deletionVector"] = vector(row)
    changes = [remove(file.path), line]
    if conflicts:
        with pytest.raises(ConcurrentDeleteReadException) as caught:
            ours.commit(changes, operation="DELETE")
        assert caught.value.evidence is not None
        assert caught.value.evidence.rows[0]["positions"] == (9,)
    else:
        assert ours.commit(changes, operation="DELETE").version == 2
        assert deleted(log) == [0, 4, 9]
        table = DeltaTable(str(place))
        rows = QueryBuilder().register("t", table).execute("SELECT value FROM t").read_all()
        assert sorted(pa.table(rows)["value"].to_pylist()) == [1, 2, 3, 5, 6, 7, 8]


# replace_where and dynamic overwrites are reads


@pytest.mark.parametrize("how", ["replace_where", "dynamic"])
def test_rows_that_an_overwrite_replaces_were_read(lake: txlake.Lake, how: str) -> None:
    rows = pa.table({"id": [1], "p": ["1"]})
    lake.write(rows, "t", partition_by="p")
    for value, conflicts in (("1", True), ("2", False)):
        tx = lake.begin("serializable")
        if how == "dynamic":
            tx.write(rows, "t", "overwrite", partition_overwrite="dynamic")
        else:
            tx.write(rows, "t", "overwrite", replace_where="p = '1'")
        lake.write(pa.table({"id": [2], "p": [value]}), "t", "append")
        if conflicts:
            with pytest.raises(ConcurrentAppendException):
                tx.commit()
        else:
            tx.commit()
