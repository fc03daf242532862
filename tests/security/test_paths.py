"""No path that a table's log names leads out of the table, unless somebody allowed the place."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import txlake
from tests.security import hostile
from txlake.cli.connecting import connection_of
from txlake.cli.lakes import open_lake
from txlake.datafiles.vectors import ExternalVectors, VectorCache
from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import DeletionVector
from txlake.protocol.deletion_vectors import relative_vector
from txlake.protocol.file_names import sidecar_path
from txlake.protocol.reach import ANYWHERE, Reach
from txlake.settings import Settings
from txlake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = Path(str(txlake.__file__)).parent
HOSTILE = pytest.mark.no_interop("the log names files that aren't the table's")


# --- what may be named ------------------------------------------------------------------------

CLIMBING = (
    "../x",
    "a/../../x",
    "a/..",
    "..",
    ".",
    "./x",
    "a/./x",
    "%2e%2e/x",
    "%2E%2e%2fx",
    "a%2F..%2F..%2Fx",
    "a%00b",
    "file:///data/t/../u/x",
    "file:///data/t/%2e%2e/u/x",
    "/data/t/../u/x",
    "s3://b/t/../x",
)


@pytest.mark.parametrize("path", CLIMBING)
def test_a_path_that_climbs_is_damage(path: str) -> None:
    for allowed in ((), (ANYWHERE,)):
        with pytest.raises(CorruptTable, match="file:///data/t: the log names the file"):
            Reach("file:///data/t", lambda places=allowed: places).url(path)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("file:///data/t", "file:///data/u/x"),
        ("file:///data/t", "file:/data/u/x"),
        ("file:///data/t", "/data/u/x"),
        ("file:///data/t", "///data/u/x"),
        ("file:///data/t", "file:///data/t2/x"),
        ("file:///data/t", "file:///data/t"),
        ("file:///data/t", "file://elsewhere/data/t/x"),
        ("file:///data/t", "FILE:/etc/passwd"),
        ("file:///data/t", "s3://b/data/t/x"),
        ("file:///data/t", "https://example.org/x"),
        ("file:///data/t", "jar:file:/data/t/x!/y"),
        ("s3://b/t", "s3://c/t/x"),
        ("s3://b/t", "s3://b@c/t/x"),
        ("s3://b/t", "file:///b/t/x"),
        ("s3://b/t", "/u/x"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@example.org/t/x"),
        ("memory://m/t", "memory://m/u/x"),
    ],
)
def test_a_place_that_nobody_allowed_is_refused(root: str, path: str) -> None:
    with pytest.raises(InvalidRequest, match="allow_outside_paths"):
        Reach(root).url(path)
    with pytest.raises(InvalidRequest, match="allow_outside_paths"):
        Reach(root, lambda: ("file:///data/other", "s3://other")).url(path)
    assert Reach(root, lambda: (ANYWHERE,)).url(path)


@pytest.mark.parametrize(
    ("root", "path", "url"),
    [
        ("file:///data/t", "x", "file:///data/t/x"),
        ("file:///data/t", "p=..%252F/x", "file:///data/t/p=..%252F/x"),
        ("file:///data/t", "p=../x", "file:///data/t/p=../x"),
        ("file:///data/t", "...", "file:///data/t/..."),
        ("file:///data/t", "..x/.y", "file:///data/t/..x/.y"),
        ("file:///data/t", "/data/t/x", "file:///data/t/x"),
        ("file:///data/t", "file:/data/t/x", "file:///data/t/x"),
        ("file:///data/a%20b", "file:/data/a%20b/x", "file:///data/a%20b/x"),
        ("s3://b/t", "s3a://b/t/x", "s3://b/t/x"),
        ("file:///", "file:///x", "file:///x"),
    ],
)
def test_what_is_the_tables_own_needs_nothing(root: str, path: str, url: str) -> None:
    def asked() -> Iterator[str]:
        pytest.fail("nobody needs to allow it")

    assert Reach(root, asked).url(path) == url


def test_a_folder_that_is_allowed_holds_what_is_below_it() -> None:
    reach = Reach("file:///data/t", lambda: ("file:///data/u/", "s3a://b/warehouse"))
    assert reach.url("file:/data/u/x") == "file:///data/u/x"
    assert reach.url("s3://b/warehouse/t/x") == "s3://b/warehouse/t/x"
    for path in ("file:///data/u2/x", "file:///data/u", "s3://b/warehouse2/x", "file:///data/x"):
        with pytest.raises(InvalidRequest):
            reach.url(path)


def test_vectors_are_the_tables_own_too() -> None:
    def vector(kind: str, text: str) -> DeletionVector:
        return DeletionVector(
            storage_type=kind, path_or_inline_dv=text, size_in_bytes=1, cardinality=1
        )

    reach = Reach("file:///data/t")
    name = f"deletion_vector_{hostile.UUID}.bin"
    assert reach.vector(relative_vector(hostile.UUID, "ab", 1, 40, 2)) == f"ab/{name}"
    assert reach.vector(relative_vector(hostile.UUID, "a%2e", 1, 40, 2)) == f"a%2e/{name}"
    assert reach.vector(vector("p", "file:/data/t/x%20y")) == "x y"
    for prefix in ("..", "../u", "a/../..", "."):
        with pytest.raises(CorruptTable, match="names the file"):
            reach.vector(relative_vector(hostile.UUID, prefix, 1, 40, 2))
    for text in ("file:///data/t/../u/x", "file:///data/t/%2e%2e/u/x"):
        with pytest.raises(CorruptTable, match="names the file"):
            reach.vector(vector("p", text))
    with pytest.raises(CorruptTable, match="names the file"):
        reach.vector(vector("p", "../u/x"))
    with pytest.raises(InvalidRequest, match="allow_outside_paths"):
        reach.vector(vector("p", "file:///data/u/x"))
    # An absolute prefix is none of the table's.
    with pytest.raises(InvalidRequest, match="allow_outside_paths"):
        reach.vector(relative_vector(hostile.UUID, "/data/u", 1, 40, 2))


def test_the_rules_of_conflict_read_vectors_where_they_may(tmp_path: Path) -> None:
    sizes = hostile.write_vector(tmp_path / "source" / "some where" / hostile.VECTOR_NAME)
    url = f"{(tmp_path / 'source').as_uri()}/some%20where/{hostile.VECTOR_NAME}"
    vector = DeletionVector(
        storage_type="p",
        path_or_inline_dv=url,
        size_in_bytes=sizes["sizeInBytes"],
        cardinality=sizes["cardinality"],
        offset=sizes["offset"],
    )
    store = open_store(tmp_path / "clone")
    allowed = ExternalVectors(
        Reach(store.url, lambda: ((tmp_path / "source").as_uri(),)), open_store
    )
    assert list(VectorCache(store, allowed).of(vector)) == [1]
    assert list(VectorCache(store, allowed).of_id(vector.unique_id)) == [1]
    for elsewhere in (None, ExternalVectors(Reach(store.url), open_store)):
        refused = VectorCache(store, elsewhere)
        with pytest.raises(InvalidRequest, match="allow_outside_paths"):
            refused.of(vector)
        with pytest.raises(InvalidRequest, match="allow_outside_paths"):
            refused.of_id(vector.unique_id)


@pytest.mark.parametrize("path", ["", ".", "..", "a/..", "/", "file:///x/..", "a\0b"])
def test_a_sidecar_is_a_file_in_its_folder(path: str) -> None:
    with pytest.raises(CorruptTable, match="sidecar"):
        sidecar_path(path)


def test_a_sidecars_folder_is_always_the_same() -> None:
    for path in ("x.parquet", "../../x.parquet", "file:///etc/x.parquet"):
        assert sidecar_path(path) == "_delta_log/_sidecars/x.parquet"


def test_who_reads_a_named_file_asks_first() -> None:
    """The two functions that only work out where a path leads are used where nothing is read."""
    may = {
        "protocol/paths.py",  # where one is
        "protocol/deletion_vectors.py",  # where the other is
        "protocol/reach.py",
        "ddl/feature_traces.py",  # the names of vectors that were removed
        "commit/table_paths.py",  # which of the files below the table are needed
        "iceberg/store_io.py",  # the names of data files in Iceberg's metadata
        "commands/maintenance.py",  # the names of files that were listed below the table
    }
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if re.search(r"\b(absolute_url|vector_path)\b", path.read_text(encoding="utf-8"))
    }
    assert found == may


# --- statements on a hostile table ------------------------------------------------------------


def _named(outside: Path, folder: Path, form: str) -> dict[str, Any]:
    """An add action that leads out of the table in `folder`, to a file in `outside`."""
    size = hostile.write_rows(outside / "x.parquet", hostile.MARK)
    own = hostile.write_rows(folder / "own.parquet", "mine")
    sizes = hostile.write_vector(outside / hostile.VECTOR_NAME)
    url = outside.as_uri()
    match form:
        case "climbing":
            return hostile.add(f"../{outside.name}/x.parquet", size)
        case "encoded":
            return hostile.add(f"%2e%2e%2F{outside.name}/x.parquet", size)
        case "rooted":
            return hostile.add(f"{outside}/x.parquet", size)
        case "url":
            return hostile.add(f"{url}/x.parquet", size)
        case "climbing url":
            return hostile.add(f"{folder.as_uri()}/../{outside.name}/x.parquet", size)
        case "vector":
            vector = hostile.absolute_vector(f"{url}/{hostile.VECTOR_NAME}", sizes)
            return hostile.add("own.parquet", own, vector)
        case "climbing vector":
            vector = hostile.relative_vector(f"../{outside.name}", sizes)
            return hostile.add("own.parquet", own, vector)
    raise AssertionError(form)


FORMS = ("climbing", "encoded", "rooted", "url", "climbing url", "vector", "climbing vector")


def _statements(name: str) -> list[str]:
    """What reads a table's rows in one way or another."""
    return [
        f"SELECT * FROM {name}",
        f"DELETE FROM {name} WHERE id = 1",
        f"SELECT * FROM {name} VERSION AS OF 0",
        f"INSERT INTO mine SELECT * FROM {name}",
        f"UPDATE {name} SET v = 'x' WHERE id = 1",
        f"MERGE INTO {name} t USING (SELECT 1L id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"OPTIMIZE {name}",
        f"CREATE TABLE deep DEEP CLONE {name}",
        f"CREATE TABLE shallow SHALLOW CLONE {name}",
        f"GENERATE symlink_format_manifest FOR TABLE {name}",
    ]


@HOSTILE
@pytest.mark.parametrize("form", FORMS)
def test_no_statement_reads_what_a_hostile_log_names(
    tmp_path: Path, spark: SparkSession, form: str
) -> None:
    folder, outside = tmp_path / "t", tmp_path / "outside"
    second = hostile.write_rows(folder / "second.parquet", "mine")
    hostile.table(folder, _named(outside, folder, form), hostile.add("second.parquet", second))
    before = {path: path.read_bytes() for path in outside.iterdir()}
    name = f"delta.`{folder}`"
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        lake.sql("CREATE TABLE mine (id LONG, v STRING)")
        for text in _statements(name)[: None if form in ("url", "vector") else 2]:
            if form.endswith("vector") and text.startswith("GENERATE"):
                continue  # refused, because there is a vector
            said = _refusal(lake, text)
            assert "the log names the file" in said, text
            assert hostile.MARK not in said
        assert lake.read("mine").count() == 0
        assert [row.tableName for row in lake.sql("SHOW TABLES").collect()] == ["mine"]
        lake.sql(f"VACUUM {name}")
    assert {path: path.read_bytes() for path in outside.iterdir()} == before


def _refusal(lake: txlake.Lake, text: str) -> str:
    """What the statement is refused with; nothing when it isn't."""
    try:
        lake.sql(text).collect()
    except (CorruptTable, InvalidRequest) as error:
        return str(error)
    return ""


@HOSTILE
@pytest.mark.parametrize("form", FORMS)
def test_no_hostile_file_is_brought_back(tmp_path: Path, spark: SparkSession, form: str) -> None:
    folder, outside = tmp_path / "t", tmp_path / "outside"
    named = _named(outside, folder, form)
    hostile.table(folder, named)
    fields = {key: named["add"][key] for key in named["add"] if key in hostile.OF_REMOVE}
    remove = {"remove": fields | {"deletionTimestamp": 1}}
    (folder / "_delta_log" / f"{1:020}.json").write_text(json.dumps(remove))
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        said = _refusal(lake, f"RESTORE TABLE delta.`{folder}` TO VERSION AS OF 0")
    assert "the log names the file" in said


@HOSTILE
def test_an_allowed_folder_is_read(tmp_path: Path, spark: SparkSession) -> None:
    folder, outside = tmp_path / "t", tmp_path / "outside"
    hostile.table(folder, _named(outside, folder, "url"))
    for place in (str(outside), outside.as_uri(), ANYWHERE):
        settings = Settings(allow_outside_paths=(place,))
        with txlake.connect(str(tmp_path / "warehouse"), spark=spark, settings=settings) as lake:
            assert lake.read(str(folder)).count() == 3
    settings = Settings(allow_outside_paths=(str(tmp_path / "other"),))
    with (
        txlake.connect(str(tmp_path / "warehouse"), spark=spark, settings=settings) as lake,
        pytest.raises(InvalidRequest, match="outside of the table's folder"),
    ):
        lake.read(str(folder)).count()


def test_the_command_line_is_told_by_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXLAKE_ALLOW_OUTSIDE_PATHS", "/data/a,s3://b/c")
    place = connection_of(str(tmp_path), None, None, None)
    with open_lake(place) as (_, session):
        assert session.engine.settings.allow_outside_paths == ("/data/a", "s3://b/c")
    monkeypatch.delenv("TXLAKE_ALLOW_OUTSIDE_PATHS")
    assert connection_of(str(tmp_path), None, None, None).allow_outside_paths == ()


# --- shallow clones ---------------------------------------------------------------------------


def test_tables_of_a_lake_share_files_and_others_do_not(
    tmp_path: Path, spark: SparkSession
) -> None:
    place = tmp_path / "place"
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        lake.sql("CREATE TABLE a AS SELECT id FROM range(0, 4, 1, 1); DELETE FROM a WHERE id = 2")
        lake.sql("CREATE TABLE b SHALLOW CLONE a; DELETE FROM b WHERE id = 1")
        assert lake.read("b").count() == 2
        lake.sql("CREATE TABLE c SHALLOW CLONE b; UPDATE c SET id = 9 WHERE id = 0")
        assert sorted(row.id for row in lake.read("c").collect()) == [3, 9]
        # The clone's transactions meet on rows of a file that has the source's vector.
        lake.sql("CREATE TABLE f SHALLOW CLONE a")
        first, second = lake.begin(), lake.begin()
        first.sql("DELETE FROM f WHERE id = 0")
        second.sql("DELETE FROM f WHERE id = 3")
        first.commit()
        second.commit()
        assert [row.id for row in lake.read("f").collect()] == [1]
        # A table of the lake that lies elsewhere is one of them, in both directions.
        lake.sql(f"CREATE TABLE d LOCATION '{place}' AS SELECT id FROM range(3)")
        lake.sql("CREATE TABLE e SHALLOW CLONE d")
        assert lake.read("e").count() == 3


def test_a_lake_remembers_the_clones_that_it_made(tmp_path: Path, spark: SparkSession) -> None:
    def place(name: str) -> str:
        return f"delta.`{tmp_path / name}`"

    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        lake.sql(f"CREATE TABLE {place('a')} AS SELECT id FROM range(4)")
        lake.sql(f"CREATE TABLE b SHALLOW CLONE {place('a')}; DELETE FROM b WHERE id = 1")
        lake.sql(f"CREATE TABLE {place('c')} SHALLOW CLONE b")
        lake.sql(f"INSERT INTO {place('c')} VALUES (9)")
        lake.sql(f"CREATE TABLE {place('d')} SHALLOW CLONE {place('c')}")
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        counts = [lake.read(at).count() for at in ("b", str(tmp_path / "c"), str(tmp_path / "d"))]
        assert counts == [3, 4, 4]
        # A folder that one clone reads is no other table's.
        shutil.copytree(tmp_path / "d", tmp_path / "e")
        with pytest.raises(InvalidRequest, match="allow_outside_paths"):
            lake.read(str(tmp_path / "e")).count()
    with txlake.connect(str(tmp_path / "other"), spark=spark) as lake:
        with pytest.raises(InvalidRequest, match="allow_outside_paths"):
            lake.read(str(tmp_path / "c")).count()
        with pytest.raises(InvalidRequest, match="allow_outside_paths"):
            lake.sql(f"CREATE TABLE f SHALLOW CLONE {place('c')}")
    allowed = Settings(allow_outside_paths=(str(tmp_path),))
    with txlake.connect(str(tmp_path / "other"), spark=spark, settings=allowed) as lake:
        lake.sql(f"CREATE TABLE g SHALLOW CLONE {place('c')}")
        assert lake.read("g").count() == 4


def test_where_tables_have_no_names_the_spark_session_says_what_is_allowed(
    tmp_path: Path, spark: SparkSession
) -> None:
    source, clone = str(tmp_path / "source"), str(tmp_path / "clone")
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        lake.write(spark.range(3), source)
    table = txlake.DeltaTable.forPath(spark, source)
    assert table.clone(clone, isShallow=True).toDF().count() == 3  # who makes it may read it
    again = txlake.DeltaTable.forPath(spark, str(shutil.copytree(clone, tmp_path / "again")))
    with pytest.raises(InvalidRequest, match=r"spark\.txlake\.allowOutsidePaths"):
        again.toDF().count()
    spark.conf.set("spark.txlake.allowOutsidePaths", f"/nowhere, {source}")
    try:
        assert again.toDF().count() == 3
    finally:
        spark.conf.unset("spark.txlake.allowOutsidePaths")
