"""The pages in docs/ are true: names that exist, all of them, and examples that run."""

from __future__ import annotations

import re
import shlex
import tomllib
import typing
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.pages import ROOT, blocks, codes, page, table
from tests.shared_tables.variants import ALL
from txlake import errors
from txlake.conflict.rules import RULES
from txlake.spark.session_rules import classified
from txlake.sql import parse
from txlake.sql.statements import (
    AddFeature,
    BranchStatement,
    Kill,
    ReadChanges,
    ReadTable,
    Statement,
    UpgradeProtocol,
    Write,
)

_BESIDE = page("docs/beside-other-engines.md")
_WHERE = page("docs/where-it-runs.md")
# What SQL has no words for, and what ends another session.
_NOT_SHOWN = {AddFeature, Kill, ReadChanges, ReadTable, UpgradeProtocol, Write}


def test_every_error_is_explained_and_none_else() -> None:
    text = page("docs/errors.md")
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.TxlakeError)
    }
    headings = re.findall(r"^## `(\w+)`", text, re.MULTILINE)
    rows = {name: cells[0] for cells in table(text, "error") for name in codes(cells[0])}
    other_names = {"DeltaConcurrentModificationException", "ConcurrentWriteException"}
    explained = {*headings, *rows, *other_names}
    assert explained == set(classes)
    for name, cell in rows.items():
        numbers = tuple(map(int, re.findall(r"\d+", cell)))
        assert numbers == classes[name].codes, name
    fields = set(errors.Evidence.__dataclass_fields__)
    assert fields <= set(codes(text))


def test_the_rules_are_those_of_the_code_in_their_order() -> None:
    text = page("docs/how-a-commit-works.md")
    assert [codes(cells[0])[0] for cells in table(text, "rule")] == [
        rule.__name__ for rule in RULES
    ]
    assert all(hasattr(errors, codes(cells[2])[0]) for cells in table(text, "rule"))


@pytest.mark.parametrize(
    "name", [path.name for folder in ("", "docs") for path in sorted((ROOT / folder).glob("*.md"))]
)
def test_links_lead_somewhere(name: str) -> None:
    [path] = [path for path in (ROOT / name, ROOT / "docs" / name) if path.is_file()]
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).is_file(), link


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_places_of_the_code_are_there(name: str) -> None:
    """A file, a folder, and what a table says is in the file that it names before."""
    named = [one for one in codes(page(name)) if re.fullmatch(r"[\w/]+(\.py|/\w+)", one)]
    assert named
    for one in named:
        assert any((root / one).exists() for root in (ROOT / "src" / "txlake", ROOT)), one


def test_the_walk_passes_by_what_is_there() -> None:
    steps = table(page("ARCHITECTURE.md"), "step")
    assert [cells[0] for cells in steps] == [str(number) for number in range(1, len(steps) + 1)]
    for _, where, _ in steps:
        text = ""
        for one in codes(where):
            if one.endswith(".py"):
                text = page(f"src/txlake/{one}")
            else:
                assert re.search(rf"\bdef {one}\(", text), (where, one)


def test_the_layers_are_those_that_are_checked() -> None:
    config = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]
    [layers] = [one["layers"] for one in config["contracts"] if one.get("containers")]
    checked = [re.findall(r"\w+", line) for line in layers]
    said = [codes(cells[0]) for cells in table(page("ARCHITECTURE.md"), "layer")]
    order = {name: place for place, names in enumerate(checked) for name in names}
    places = [[order[name] for name in names] for names in said]
    assert all(len(set(line)) == 1 for line in places)
    assert [line[0] for line in places] == sorted(line[0] for line in places)
    folders = {path.name for path in (ROOT / "src" / "txlake").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} <= {name for names in said for name in names}


def test_the_picture_is_one() -> None:
    root = ElementTree.fromstring(page("docs/how-a-commit-works.svg"))
    assert root.tag.endswith("svg")
    assert f"rules 1 to {len(RULES)}" in page("docs/how-a-commit-works.svg")


def test_who_writes_and_reads_what_is_what_the_shared_tables_try() -> None:
    said = {cells[0].strip("`").lower(): cells[1:] for cells in table(_BESIDE, "table")}
    assert set(said) == {variant.name.lower() for variant in ALL}
    for variant in ALL:
        delta_rs, polars = said[variant.name.lower()]
        lacks = ", ".join(kind.upper() for kind in variant.lacks)
        assert delta_rs == (
            f"writes, without {lacks}"
            if lacks
            else "writes"
            if "delta-rs" in variant.writers
            else "refuses"
            if "delta-rs" in variant.unread
            else "reads"
        )
        assert polars == ("refuses" if "polars" in variant.unread else "reads")


def _kinds(union: object) -> Iterator[object]:
    for member in typing.get_args(union):
        yield from _kinds(member) if typing.get_args(member) else (member,)


def test_the_page_of_sql_has_every_statement() -> None:
    shown = {type(one) for text in blocks(page("docs/sql.md"), "sql") for one in parse(text)}
    assert {*shown, *_NOT_SHOWN} == set(_kinds(Statement))


@pytest.mark.broad
def test_the_page_of_sql_runs_as_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.json").write_text(
        '{"at": "2026-01-01 10:00", "what": "opened", "who": "me"}\n'
    )
    (tmp_path / "deliveries").mkdir()
    for name in ("deliveries/a.csv", "returns.csv"):
        (tmp_path / name).write_text("item;pieces\nplum;3\n")
    sales = spark.range(4).selectExpr("id", "CAST(2024 + id % 2 AS INT) AS year")
    sales.write.partitionBy("year").parquet(str(tmp_path / "old_sales"))
    spark.sql("DROP TABLE IF EXISTS old_visits")
    spark.range(3).write.format("parquet").saveAsTable("old_visits")
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        for text in blocks(page("docs/sql.md"), "sql"):
            lake.sql(text.replace("/data/", f"{tmp_path}/")).collect()
        assert lake.read("store").where("item = 'kiwi'").count() == 0  # restored to before it
        assert lake.read("events").where("who = 'me'").count() == 1
        assert lake.read(str(tmp_path / "old_sales")).where("year = 2025").count() == 2
        assert lake.read("old_visits").count() == 3
    spark.sql("DROP TABLE old_visits")


@pytest.mark.broad
def test_the_page_of_streams_runs_as_written(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    for program in blocks(page("docs/streams.md"), "python"):
        exec(compile(program.replace("/data/", f"{tmp_path}/"), "docs/streams.md", "exec"), names)
    lake = names["lake"]
    assert isinstance(lake, txlake.Lake)
    assert [row.id for row in lake.read("large_orders").collect()] == [1]
    assert [tuple(row) for row in lake.read("stock").collect()] == [("apple", 7)]
    assert lake.read("booked").count() == lake.read(f"{tmp_path}/copy").count() == 2
    lake.close()


def test_the_loggers_are_those_of_the_code() -> None:
    package = ROOT / "src" / "txlake"
    logging = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if "logging.getLogger(__name__)" in path.read_text(encoding="utf-8")
    }
    said = {codes(cells[0])[0] for cells in table(page("docs/operations.md"), "loggers below")}
    assert said == {f"txlake.{name}" for name in logging}


@pytest.mark.broad
@pytest.mark.parametrize("name", ["errors", "migrating", "pipelines", "transactions"])
def test_the_how_to_runs_as_written_and_prints_what_it_says(
    name: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {}
    programs = blocks(page(f"docs/{name}.md"), "python")
    for program in programs:
        exec(compile(program, f"docs/{name}.md", "exec"), names)
    promised = re.findall(r"^ *print\(.*\)  # (.*)$", "".join(programs), re.MULTILINE)
    assert promised
    assert capsys.readouterr().out.splitlines() == promised


def test_a_client_without_java_is_told_all_that_txlake_needs() -> None:
    needed = tomllib.loads(page("pyproject.toml"))["project"]["dependencies"]
    [command] = re.findall(
        r"^pip install 'pyspark-client[^']*' ((?:.*\\\n)*.*)$", _WHERE, re.MULTILINE
    )
    others = [one for one in needed if not one.startswith("pyspark>")]
    # A lower bound is what pip installs anyway; an upper one has to be in the command.
    assert sorted(shlex.split(command.replace("\\\n", " "))) == sorted(
        re.sub(">=[^,<]*,?", "", one) for one in others
    )


def test_every_setting_that_changes_what_txlake_does_is_on_its_page() -> None:
    text = page("docs/compatibility.md")
    section = text[text.index("## Settings of the Spark session") : text.index("## Limits")]
    missing = [
        key
        for key, treatment in classified().items()
        if treatment in {"evaluated", "refused"}
        and f"`{key.removeprefix('spark.sql.')}`" not in section
    ]
    assert not missing


def test_the_page_of_branches_has_every_statement_on_branches() -> None:
    texts = blocks(page("docs/branches.md"), "sql")
    shown = {type(statement) for text in texts for statement in parse(text)}
    assert set(typing.get_args(BranchStatement)) <= shown


@pytest.mark.broad
def test_the_page_of_branches_runs_as_written(spark: SparkSession, tmp_path: Path) -> None:
    """Each block in a lake of its own, with the branches that the block uses and doesn't make."""
    found = re.findall(r"```(sql|python)\n(.*?)```", page("docs/branches.md"), re.DOTALL)
    for number, (language, text) in enumerate(found):
        folder, own = tmp_path / str(number), spark.newSession()
        with txlake.connect(str(folder / "lake"), spark=own) as lake:
            _prepare_branches(lake, own, folder, text)
            instant = lake.sql("SELECT max(sequence) FROM txlake.commits").collect()[0][0]
            now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
            written = text.replace("/data/", f"{folder}/").replace("4711", str(instant))
            written = re.sub(r"(TIMESTAMP) '[^']*'", rf"\1 '{now}'", written)
            if language == "sql":
                lake.sql(written).collect()
                continue
            txlake.enable(own, lake)
            names = {"lake": lake, "spark": own, "txlake": txlake}
            names["loads"] = lake.read("sales.loads")
            exec(compile(written, "docs/branches.md", "exec"), names)


def _prepare_branches(lake: txlake.Lake, spark: SparkSession, folder: Path, text: str) -> None:
    """The tables of the page, and branches of them that a block of it doesn't create."""
    orders = f"delta.`{folder}/orders`"
    lake.sql("CREATE DATABASE sales; CREATE TABLE sales.loads (at TIMESTAMP, pieces BIGINT)")
    for table_name in ("sales.orders", orders):
        lake.sql(f"CREATE TABLE {table_name} (id BIGINT, pieces BIGINT)")
        lake.sql(f"INSERT INTO {table_name} VALUES (1, 1), (7, 2)")
    spark.sql("SELECT 7L AS id, 3L AS pieces").createOrReplaceTempView("incoming")
    if "create=True" in text:
        return
    for name in ("nightly", "experiment/2"):
        is_made = re.search(rf"CREATE BRANCH `?{name}", text) is not None
        if not is_made and "FOR TABLE" not in text:
            lake.branch(name, create=True).sql("INSERT INTO sales.orders VALUES (5, 5)")
    if "DROP FEATURE" in text:
        lake.sql(f"CREATE BRANCH b FOR TABLE {orders}; DROP BRANCH b FOR TABLE {orders}")
