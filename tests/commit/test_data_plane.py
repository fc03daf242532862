"""The contract of the data plane: what every adapter does.

They are Spark's, which lets the driver work on few rows (`txlake.local`), Spark's without that, and
the simulation's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from tests.simulation.rows.plane import RowPlane
from tests.spark.tables import NO_VECTORS, VECTORS, PathTable, spark_plane, table
from txlake.commit.change import Change
from txlake.commit.data_plane import DataPlane, Placement
from txlake.commit.net_changes import ChangedRows
from txlake.commit.row_origins import Origins
from txlake.conflict.footprint import Read
from txlake.datafiles.origins import NO_FILE
from txlake.ddl.feature_traces import without_mapping
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.local import candidate_rows
from txlake.local import merge as local_merge
from txlake.local.control_columns import FILE, ROW
from txlake.log.predicates import to_text
from txlake.protocol.actions import Add, Remove
from txlake.protocol.types import Field, Primitive, Struct
from txlake.settings import Settings
from txlake.sql.statements import SqlText, Values
from txlake.storage import open_store

LONG, STRING = Primitive("long"), Primitive("string")
ROWS = "(1, 'a', 10), (2, 'a', 20), (3, 'b', 30), (4, NULL, NULL)"
ALL = [(1, "a", 10), (2, "a", 20), (3, "b", 30), (4, None, None)]


@pytest.fixture(params=["spark", "spark alone", "rows"])
def plane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DataPlane:
    settings = Settings()
    if request.param == "spark alone":
        monkeypatch.setattr(candidate_rows, "_FILES_MAX", -1)
        monkeypatch.setattr(local_merge, "_ROWS_MAX", -1)
    if request.param != "rows":
        return spark_plane(lambda: request.getfixturevalue("spark"), settings)
    return RowPlane(
        settings=settings, store_at=lambda place: open_store(place, {}), spark_settings={}
    )


def made(
    folder: Path,
    plane: DataPlane,
    columns: str = "id LONG, p STRING, n INT",
    *,
    partitioned_by: str | None = None,
    properties: Mapping[str, str] = VECTORS,
    rows: str = ROWS,
) -> PathTable:
    """A table with rows in one file, or one a partition."""
    made = table(
        folder / "t",
        None,
        columns,
        partitioned_by=partitioned_by,
        properties=properties,
        plane=plane,
    )
    made.run(f"INSERT INTO t VALUES {rows}")
    return made


@pytest.fixture(params=[VECTORS, NO_VECTORS], ids=["vectors", "no vectors"])
def t(request: pytest.FixtureRequest, tmp_path: Path, plane: DataPlane) -> PathTable:
    return made(tmp_path, plane, properties=request.param)


def told(reads: tuple[Read, ...]) -> list[tuple[object, ...]]:
    """What reads say: their predicates as text, their authors' text, whether all rows go."""
    return [
        (None if one.predicate is None else to_text(one.predicate), one.text, one.deletes_all)
        for one in reads
    ]


def files(change: Change, kind: type[Add] | type[Remove]) -> int:
    return sum(isinstance(one, kind) for one in change.actions)


# INSERT


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("INSERT INTO t VALUES (5, 'c', 50)", (5, "c", 50)),
        ("INSERT INTO t (n, id) VALUES (50, 5)", (5, None, 50)),
        ("INSERT INTO t SELECT 5, 'c', 2 * 25", (5, "c", 50)),
        ("INSERT INTO t BY NAME SELECT 50 AS n, 5 AS id", (5, None, 50)),
    ],
)
def test_rows_are_added(
    tmp_path: Path, plane: DataPlane, statement: str, row: tuple[object, ...]
) -> None:
    t = made(tmp_path, plane)
    change = t.run(statement)
    assert t.rows() == [*ALL, row]
    assert change.operation == "WRITE"
    assert change.affected == {"num_affected_rows": 1, "num_inserted_rows": 1}
    assert (change.reads, files(change, Add), files(change, Remove)) == ((), 1, 0)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO t VALUES (NULL, 1)", "NOT NULL of column 'id' is violated"),
        ("INSERT INTO t VALUES (7, -1)", "CHECK constraint positive"),
        ("INSERT INTO t VALUES (7, 1, 1)", "expected 2 "),
        ("INSERT INTO t (id, x) VALUES (7, 1)", "no column 'x'"),
        ("UPDATE t SET n = -n", "CHECK constraint positive"),
        ("UPDATE t SET id = NULL", "NOT NULL of column 'id' is violated"),
        ("UPDATE t SET n = 1, N = 2", "assigned twice"),
        ("UPDATE t SET x = 2", "no column 'x'"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, plane: DataPlane, statement: str, message: str
) -> None:
    rules = {"delta.constraints.positive": "n > 0"}
    t = made(tmp_path, plane, "id LONG NOT NULL, n INT", properties=rules, rows="(1, 1), (2, 2)")
    with pytest.raises(InvalidRequest, match=message):
        t.run(statement)


def test_what_a_row_doesn_t_give_is_filled_in(tmp_path: Path, plane: DataPlane) -> None:
    columns = "id LONG, n INT DEFAULT 7, twice LONG GENERATED ALWAYS AS (id * 2)"
    properties = {"delta.feature.allowColumnDefaults": "supported"}
    t = made(tmp_path, plane, columns, properties=properties, rows="(1, 1, 2)")
    t.run("INSERT INTO t (id) VALUES (2)")
    t.run("UPDATE t SET id = 5, n = DEFAULT WHERE id = 1")
    assert t.rows() == [(2, 7, 4), (5, 7, 10)]


def test_every_row_is_replaced(t: PathTable) -> None:
    change = t.run("INSERT OVERWRITE t VALUES (5, 'c', 50)")
    assert t.rows() == [(5, "c", 50)]
    assert change.affected == {"num_affected_rows": 1, "num_inserted_rows": 1}
    assert told(change.reads) == [(None, None, False)]


def test_partitions_are_replaced(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane, partitioned_by="p")
    new = pa.table({"id": [9], "p": ["a"], "n": pa.array([90], pa.int32())})
    change = t.overwrite_partitions(new)
    assert t.rows() == [(3, "b", 30), (4, None, None), (9, "a", 90)]
    assert told(change.reads) == [("p = 'a'", "dynamic partition overwrite", False)]
    assert (files(change, Add), files(change, Remove)) == (1, 1)


@pytest.mark.parametrize("stay", [False, True])
def test_null_partitions_are_replaced_or_stay(tmp_path: Path, plane: DataPlane, stay: bool) -> None:
    t = made(tmp_path, plane, partitioned_by="p")
    new = pa.table({"id": [8, 9], "p": [None, "a"], "n": pa.array([80, 90], pa.int32())})
    change = t.work().overwrite_partitions(new, Placement(), keep_null_partitions=stay)
    t.commit(change)
    left = [(4, None, None)] if stay else []
    assert t.rows() == [(3, "b", 30), *left, (8, None, 80), (9, "a", 90)]
    found = " ".join(str(text) for text, *_ in told(change.reads))
    assert ("IS NULL" in found) is not stay


def test_the_rows_that_a_condition_names_are_replaced(t: PathTable) -> None:
    change = t.run("INSERT INTO t REPLACE WHERE n >= 20 VALUES (5, 'c', 50), (6, 'c', 60)")
    assert t.rows() == [(1, "a", 10), (4, None, None), (5, "c", 50), (6, "c", 60)]
    assert told(change.reads) == [("n >= 20", "n >= 20", True)]
    assert change.affected == {"num_affected_rows": 2, "num_inserted_rows": 2}
    with pytest.raises(InvalidRequest, match="replace_where n >= 20 is violated by the row"):
        t.run("INSERT INTO t REPLACE WHERE n >= 20 VALUES (5, 'c', 50), (6, 'c', 6)")


def test_an_overwrite_that_moves_rows_only_says_so(t: PathTable) -> None:
    t.run("DELETE FROM t WHERE id = 4")
    work, same = t.work(), pa.table({"id": [3, 1, 2], "p": ["b", "a", "a"], "n": [30, 10, 20]})
    change = work.rearranged(work.overwrite(same, Placement(by_name=True)))
    kinds = {type(one): one for one in change.actions}
    assert set(kinds) == {Add, Remove}
    assert all(not one.data_change for one in kinds.values() if isinstance(one, Add | Remove))
    assert change.reads == ()
    t.commit(change)
    assert t.rows() == ALL[:3]


@pytest.mark.parametrize(
    "rows",
    [
        {"id": [1, 2, 3], "p": ["a", "a", "b"], "n": [10, 20, 30]},
        {"id": [1, 2, 3, 4, 4], "p": ["a", "a", "b", None, None], "n": [10, 20, 30, None, None]},
        {"id": [1, 2, 3, 4], "p": ["a", "a", "b", ""], "n": [10, 20, 30, None]},
    ],
    ids=["fewer", "one twice", "another value"],
)
def test_one_that_changes_rows_is_refused(t: PathTable, rows: dict[str, list[Any]]) -> None:
    work = t.work()
    change = work.overwrite(pa.table(rows), Placement(by_name=True))
    with pytest.raises(InvalidRequest, match="aren't those that they replace"):
        work.rearranged(change)
    [add] = [one for one in change.actions if isinstance(one, Add)]
    assert work.store.head(add.path) is None


def test_rows_are_rearranged_in_whole_files(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane)
    work = t.work()
    part = pa.table({"id": [1], "p": ["a"], "n": [10]})
    change = work.replace_where(part, Placement(by_name=True), SqlText("id = 1"))
    with pytest.raises(InvalidRequest, match="names a part of one"):
        work.rearranged(change)
    assert t.rows() == ALL


def test_rows_with_ids_are_not_rearranged(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane, properties={"delta.enableRowTracking": "true"})
    work = t.work()
    rows = {"id": [1, 2, 3, 4], "p": ["a", "a", "b", None], "n": [10, 20, 30, None]}
    change = work.overwrite(pa.table(rows), Placement(by_name=True))
    with pytest.raises(UnsupportedFeature, match="OPTIMIZE rewrites files"):
        work.rearranged(change)


# DELETE, UPDATE


@pytest.mark.parametrize(
    ("condition", "left", "read"),
    [
        ("WHERE n > 10", [ALL[0], ALL[3]], ("n > 10", "n > 10", True)),
        ("WHERE n IS NULL", ALL[:3], ("n IS NULL", "n IS NULL", True)),
        ("AS x WHERE x.id % 2 = 0", [ALL[0], ALL[2]], ("x.id % 2 = 0", "x.id % 2 = 0", True)),
        ("WHERE n > 99", ALL, ("n > 99", "n > 99", True)),
        ("", [], (None, None, True)),
    ],
)
def test_rows_are_deleted(
    t: PathTable, condition: str, left: list[object], read: tuple[object, ...]
) -> None:
    change = t.run(f"DELETE FROM t {condition}")
    assert t.rows() == left
    assert change.operation == "DELETE"
    assert change.affected == {"num_affected_rows": len(ALL) - len(left)}
    assert told(change.reads) == [read]
    assert files(change, Remove) == (0 if left == ALL else 1)
    assert files(change, Add) == (0 if left in ([], ALL) else 1)


def test_deleted_rows_are_marked_where_the_table_has_vectors(t: PathTable) -> None:
    [before] = t.adds()
    t.run("DELETE FROM t WHERE id = 2")
    t.run("DELETE FROM t WHERE id = 3")
    [after] = t.adds()
    marks = t.work().uses_vectors
    assert (after.path == before.path) is marks
    assert (None if after.deletion_vector is None else after.deletion_vector.cardinality) == (
        2 if marks else None
    )


def test_rows_are_changed(t: PathTable) -> None:
    change = t.run("UPDATE t SET n = n + id, p = 'z' WHERE id < 3")
    assert t.rows() == [(1, "z", 11), (2, "z", 22), *ALL[2:]]
    assert change.operation == "UPDATE"
    assert change.affected == {"num_affected_rows": 2}
    assert told(change.reads) == [("id < 3", "id < 3", True)]
    assert t.run("UPDATE t SET n = 0 WHERE id = 99").actions == ()


# MERGE

SOURCE = "(SELECT * FROM VALUES (2, 'x'), (3, 'y'), (7, 'z') AS v(id, p)) s"


def test_each_row_goes_by_its_first_clause(t: PathTable) -> None:
    change = t.run(
        f"MERGE INTO t USING {SOURCE} ON t.id = s.id "
        "WHEN MATCHED AND s.p = 'x' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET p = s.p, n = t.n + 1 "
        "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, s.p) "
        "WHEN NOT MATCHED BY SOURCE AND t.n IS NULL THEN UPDATE SET n = 0"
    )
    assert t.rows() == [(1, "a", 10), (3, "y", 31), (4, None, 0), (7, "z", None)]
    assert change.affected == {
        "num_affected_rows": 4,
        "num_updated_rows": 2,
        "num_deleted_rows": 1,
        "num_inserted_rows": 1,
    }
    predicate = "(id IN (2, 3, 7)) OR n IS NULL"
    assert told(change.reads) == [(predicate, "t.id = s.id", False)]


def test_a_merge_reads_the_rows_of_its_keys(t: PathTable) -> None:
    change = t.run(
        "MERGE INTO t USING (SELECT 2L AS id) s ON t.id = s.id AND t.n < 25 "
        "WHEN MATCHED THEN UPDATE SET n = 0"
    )
    assert t.rows() == [ALL[0], (2, "a", 0), *ALL[2:]]
    [(predicate, text, deletes_all)] = told(change.reads)
    assert str(predicate).startswith("n < 25")
    assert (text, deletes_all) == ("t.id = s.id AND t.n < 25", False)


def test_a_merge_inserts_and_updates_all_columns(t: PathTable) -> None:
    t.run(
        "MERGE INTO t USING (SELECT * FROM VALUES (1L, 'q', 5), (9L, 'q', 6) AS v(id, p, n)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert t.rows() == [(1, "q", 5), *ALL[1:], (9, "q", 6)]


def test_a_row_that_two_source_rows_change_is_refused(t: PathTable) -> None:
    twice = "(SELECT * FROM VALUES (2, 'x'), (2, 'y') AS v(id, p)) s"
    before = t.data_files()
    with pytest.raises(InvalidRequest, match=r'2 source rows match the target row .*"id": ?2'):
        t.run(f"MERGE INTO t USING {twice} ON t.id = s.id WHEN MATCHED THEN UPDATE SET p = s.p")
    assert t.data_files() == before
    deleted = t.run(f"MERGE INTO t USING {twice} ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert deleted.affected["num_deleted_rows"] == 1


# OPTIMIZE


def test_small_files_are_packed(t: PathTable) -> None:
    t.run("INSERT INTO t VALUES (5, 'c', 50)")
    t.run("DELETE FROM t WHERE id = 2")
    before = t.rows()
    change = t.compact()
    assert t.rows() == before
    assert (files(change, Remove), files(change, Add), change.reads) == (2, 1, ())
    assert not any(one.data_change for one in change.actions if isinstance(one, Add | Remove))
    [packed] = t.adds()
    assert packed.deletion_vector is None
    assert packed.tags is not None
    assert "txlake.sources" in packed.tags
    assert t.compact().actions == ()


def test_a_purge_rewrites_the_files_with_vectors(t: PathTable) -> None:
    t.run("INSERT INTO t VALUES (5, 'c', 50)")
    t.run("DELETE FROM t WHERE id = 2")
    marked = sum(add.deletion_vector is not None for add in t.adds())
    assert files(t.compact(purge=True), Remove) == marked
    assert t.rows() == [ALL[0], *ALL[2:], (5, "c", 50)]


@pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS], ids=["vectors", "no vectors"])
def test_files_are_rewritten_with_other_names_of_columns(
    tmp_path: Path, plane: DataPlane, properties: Mapping[str, str]
) -> None:
    """The live rows of the files given, and of no others, as the table is to be."""
    mapped = {**properties, "delta.columnMapping.mode": "name"}
    t = made(tmp_path, plane, partitioned_by="p", properties=mapped)
    t.run("DELETE FROM t WHERE id = 2")
    before = t.snapshot
    onto = before.apply([without_mapping(before.metadata)])
    given = before.select(None).slice(0, 2)
    change = t.work().rewrite(given, onto)
    removed = {one.path for one in change.actions if isinstance(one, Remove)}
    assert removed == set(given["path"].to_pylist())
    assert not any(one.data_change for one in change.actions if isinstance(one, Add | Remove))
    outputs = [one for one in change.actions if isinstance(one, Add)]
    found = set()
    for add in outputs:
        assert add.deletion_vector is None
        assert "txlake.sources" not in (add.tags or {})
        file = pq.ParquetFile(t.folder / add.path).read()
        assert file.column_names == ["id", "n"]
        found |= {(row["id"], add.partition_values["p"], row["n"]) for row in file.to_pylist()}
    kept = {add.path for add in t.adds()} - removed
    [left] = [add for add in t.adds() if add.path in kept]
    partition = next(iter(left.partition_values.values()))
    assert found == {row for row in [ALL[0], *ALL[2:]] if row[1] != partition}


def test_partitions_are_chosen(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane, partitioned_by="p")
    t.run("INSERT INTO t VALUES (5, 'a', 50), (6, 'b', 60)")
    assert t.work().files_of_partitions(SqlText("p = 'a'")).num_rows == 2
    assert files(t.compact("p = 'a'"), Remove) == 2
    with pytest.raises(InvalidRequest, match="non-partition column 'n'"):
        t.compact("n = 10")


def test_rows_are_sorted(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane, partitioned_by="p")
    assert files(t.zorder("n"), Remove) == 3
    assert t.rows() == ALL
    for column, message in (("p", "is a partition column"), ("x", "no column 'x'")):
        with pytest.raises(InvalidRequest, match=message):
            t.zorder(column)


# What a change data feed asks

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.mark.parametrize("properties", [VECTORS, NO_VECTORS], ids=["vectors", "no vectors"])
def test_new_rows_say_which_ones_they_were_made_of(
    tmp_path: Path, plane: DataPlane, properties: Mapping[str, str]
) -> None:
    t = made(tmp_path, plane, properties={**properties, **FEED})
    [was] = t.adds()
    change = t.run(
        f"MERGE INTO t USING {SOURCE} ON t.id = s.id WHEN MATCHED AND t.id = 3 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET p = s.p WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    found = {}
    for path, origins in change.origins.items():
        assert isinstance(origins, Origins)
        ids = pq.read_table(t.folder / path).column("id").to_pylist()
        for number, file, row in zip(ids, origins.files, origins.rows, strict=True):
            came = None if file == NO_FILE else (origins.sources[file], int(row))
            found[number] = (came, origins.is_update)
    others = () if properties == VECTORS else (1, 4)  # rewritten as they were
    expected: dict[int, object] = {one: ((was.path, one - 1), False) for one in others}
    new = found.pop(7, (None, True))  # alone in a file it was made of nothing that is told
    assert found == {**expected, 2: ((was.path, 1), True)}
    assert new == (None, True)


def test_without_a_feed_nobody_asks(t: PathTable) -> None:
    assert t.run("UPDATE t SET n = 0 WHERE id = 1").origins == {}


def test_changed_rows_are_written_with_what_befell_them(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane, partitioned_by="p", properties={**VECTORS, **FEED})
    [of_a] = [add for add in t.adds() if add.partition_values == {"p": "a"}]
    [of_b] = [add for add in t.adds() if add.partition_values == {"p": "b"}]
    changed = [
        ChangedRows(file=file, positions=BitMap64([place]), count=count, change_type=kind)
        for file, place, count, kind in (
            (of_a, 0, 2, "update_preimage"),
            (of_a, 1, 2, "delete"),
            (of_b, 0, 1, "delete"),
        )
    ]
    rows = set()
    for file in t.work().write_changes(changed):
        [(name, value)] = file.partition_values.items()
        assert file.path.startswith(f"_change_data/p={value}/")
        assert (name, file.data_change) == ("p", False)
        table = pq.ParquetFile(t.folder / file.path).read()
        assert table.column_names == ["id", "n", "_change_type"]
        rows |= {(value, *row.values()) for row in table.to_pylist()}
    assert rows == {
        ("a", 1, 10, "update_preimage"),
        ("a", 2, 20, "delete"),
        ("b", 3, 30, "delete"),
    }


# Rows that are there


def test_a_scan_leaves_out_what_is_deleted(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane)
    t.run("DELETE FROM t WHERE id = 2")
    work, files = t.work(), t.snapshot.select(None)
    positions = work.scan(files, positions=True).select("id", FILE, ROW)
    assert sorted(map(tuple, positions.collect())) == [(1, 0, 0), (3, 0, 2), (4, 0, 3)]
    instead = work.scan(files, deleted={0: BitMap64([0])})  # of the file's own vector
    assert sorted(row[0] for row in instead.collect()) == [2, 3, 4]
    assert t.rows(1) == ALL


def test_few_rows_are_those_of_a_scan_that_may_match(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane)
    t.run("DELETE FROM t WHERE id = 2")
    work = t.work()
    predicate = work.predicate(SqlText("id >= 2"), None)
    assert predicate is not None
    found = work.few_rows(t.snapshot.select(predicate), predicate)
    if candidate_rows._FILES_MAX < 0:
        assert found is None  # the driver reads none
        return
    assert found is not None
    assert found.columns == work.scan(t.snapshot.select(None)).columns
    assert sorted(row[0] for row in found.collect() if row[0] >= 2) == [3, 4]


def test_a_row_that_violates_a_condition_is_shown(t: PathTable) -> None:
    work = t.work()
    assert work.violating_row("id > 0") is None
    assert work.violating_row("n < 99") == {"id": 4, "p": None, "n": None}


def test_constants_become_columns(tmp_path: Path, plane: DataPlane) -> None:
    t = made(tmp_path, plane, partitioned_by="p")
    work = t.work()
    given = work.to_frame(Values(((5, 50), (6, 60))), ["id", "n"])
    frame: Any = work.with_constants(given, {"P": "'c'"})
    assert frame.columns == ["id", "n", "p"]
    assert work.constants({"P": "'c'"}) == {"p": "c"}
    change = work.append(frame, Placement())
    t.commit(change)
    assert t.rows() == [*ALL, (5, "c", 50), (6, "c", 60)]


# Texts, and rows from and for callers


def test_queries_are_over_frames_and_views(plane: DataPlane) -> None:
    frame = plane.frame(Struct((Field("a", LONG), Field("b", STRING))), [(1, "x"), (2, None)])
    found = plane.query("SELECT a + 1 AS c FROM {t} WHERE b = 'x'", {"t": frame})
    assert list(map(tuple, found.collect())) == [(2,)]
    plane.make_view("shown", frame)
    column = plane.column(SqlText("a = (SELECT max(a) FROM shown)"), lambda _: None)
    assert list(map(tuple, frame.where(column).collect())) == [(2, None)]
    assert list(map(tuple, plane.query("SELECT count(*) FROM shown", {}).collect())) == [(2,)]
    plane.drop_view("shown")
    assert plane.spark_relation("shown") is None


def test_types_are_told(plane: DataPlane) -> None:
    schema = Struct((Field("a", LONG),))
    assert plane.type_of("a + 1", schema) == LONG
    with pytest.raises(InvalidRequest):
        plane.type_of("b + 1", schema)
    rows = pa.table({"a": [1]})
    assert plane.schema_of(plane.caller_rows(rows)) == plane.schema_of(plane.frame(schema, [(1,)]))


def test_answers_are_frames(plane: DataPlane) -> None:
    counts: Any = plane.counts({"num_affected_rows": 3, "num_inserted_rows": 2})
    assert counts.columns == ["num_affected_rows", "num_inserted_rows"]
    assert [tuple(row) for row in counts.collect()] == [(3, 2)]
    nothing: Any = plane.nothing()
    assert (nothing.columns, nothing.collect()) == ([], [])
