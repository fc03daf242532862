"""Of the adapter itself: what profiles, statements and events lead to. Without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dbt.adapters.txlake import units
from dbt.adapters.txlake.credentials import TxlakeCredentials
from dbt.adapters.txlake.impl import TxlakeAdapter
from dbt.adapters.txlake.outcome import Outcome
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

import txlake.dbapi


def _profile(place: Path, **options: Any) -> TxlakeCredentials:
    return TxlakeCredentials(warehouse=str(place / "lake"), schema="default", **options)


@pytest.fixture
def _in_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "get_node_info", lambda: {"unique_id": "model.shop.orders"})


def _tables(profile: TxlakeCredentials) -> list[str]:
    with txlake.dbapi.connect(profile.warehouse) as con:
        return [str(row[1]) for row in con.execute("SHOW TABLES").fetchall()]


def _views(profile: TxlakeCredentials) -> list[str]:
    with txlake.dbapi.connect(profile.warehouse) as con:
        return [str(row[1]) for row in con.execute("SHOW VIEWS").fetchall()]


# --- profiles -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"warehouse": ""}, "no `warehouse`"),
        ({"warehouse": "w", "unit": "night"}, "unit: night; expected one of model, build, branch"),
        ({"warehouse": "w", "failed_branch": "no"}, "failed_branch: no; expected one of keep"),
        ({"warehouse": "w", "database": "prod"}, "leave `database` out"),
    ],
)
def test_a_profile_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DbtRuntimeError, match=said):
        TxlakeCredentials(**{"schema": "default", **options})


@pytest.mark.parametrize(
    ("unit", "command", "kind"),
    [
        ("model", "build", units.ByModel),
        ("model", "retry", units.ByModel),
        ("build", "build", units.OneTransaction),
        ("build", "seed", units.OneTransaction),
        ("build", "test", units.ByModel),
        ("build", "show", units.ByModel),
        ("build", None, units.ByModel),
        ("branch", "run", units.OnBranch),
        ("branch", "docs", units.ByModel),
    ],
)
def test_the_unit_of_a_command(
    tmp_path: Path, unit: str, command: str | None, kind: type[units.ByModel]
) -> None:
    assert type(units.unit_of(_profile(tmp_path, unit=unit), command)) is kind


@pytest.mark.parametrize("unit", ["build", "branch"])
def test_a_unit_that_left_nothing_cannot_be_retried(tmp_path: Path, unit: str) -> None:
    with pytest.raises(DbtRuntimeError, match="run the whole command again"):
        units.unit_of(_profile(tmp_path, unit=unit), "retry")


# --- statements -----------------------------------------------------------------------------------


def test_a_model_commits_by_itself(tmp_path: Path) -> None:
    profile = _profile(tmp_path)
    unit = units.unit_of(profile, "build")
    con = unit.take()
    unit.begin(con)
    unit.run(con, "CREATE TABLE a (i INT)", None)
    assert _tables(profile) == []
    unit.commit(con)
    assert _tables(profile) == ["a"]
    unit.begin(con)
    unit.run(con, "CREATE TABLE b (i INT)", None)
    unit.give_back(con)
    assert unit.take() is con, "connections are kept"
    assert _tables(profile) == ["a"], "what wasn't committed is rolled back"
    unit.give_back(con)
    unit.end(None)
    with pytest.raises(txlake.dbapi.InterfaceError, match="closed"):
        con.cursor()


def test_what_commits_by_itself_does_so_between_transactions(tmp_path: Path) -> None:
    profile = _profile(tmp_path)
    unit = units.unit_of(profile, "build")
    con = unit.take()
    unit.begin(con)
    unit.run(con, "CREATE DATABASE shop", None)
    assert not con.autocommit, "the transaction goes on with the next statement"
    unit.run(con, "CREATE TABLE shop.a (i INT)", None)
    with pytest.raises(txlake.dbapi.NotSupportedError, match="CREATE DATABASE"):
        unit.run(con, "CREATE DATABASE other", None)
    unit.run(con, "commit;", None)
    unit.run(con, "CREATE DATABASE other", None)
    unit.end(None)


@pytest.mark.usefixtures("_in_a_node")
def test_a_build_commits_at_its_end(tmp_path: Path) -> None:
    profile = _profile(tmp_path, unit="build")
    unit = units.unit_of(profile, "build")
    con = unit.take()
    assert unit.take() is con, "threads share a connection"
    for name in ("a", "b"):
        unit.begin(con)
        unit.run(con, f"CREATE TABLE {name} (i INT)", None)
        unit.commit(con)
        unit.rollback(con)
        unit.run(con, "commit;", None)
        unit.give_back(con)
        assert _tables(profile) == []
    unit.end(None)
    assert _tables(profile) == ["a", "b"]
    unit.end(None)


@pytest.mark.usefixtures("_in_a_node")
def test_a_build_with_a_fault_leaves_nothing(tmp_path: Path) -> None:
    profile = _profile(tmp_path, unit="build")
    unit = units.unit_of(profile, "build")
    unit.run(unit.take(), "CREATE TABLE a (i INT)", None)
    unit.end("test.shop.unique: fail")
    assert _tables(profile) == []


@pytest.mark.usefixtures("_in_a_node")
def test_nothing_runs_in_a_build_after_a_failed_statement(tmp_path: Path) -> None:
    profile = _profile(tmp_path, unit="build")
    unit = units.unit_of(profile, "build")
    con = unit.take()
    unit.run(con, "CREATE TABLE a (i INT)", None)
    with pytest.raises(txlake.dbapi.ProgrammingError):
        unit.run(con, "INSERT INTO missing VALUES (1)", None)
    assert not con.in_transaction, "its locks are free"
    with pytest.raises(DbtDatabaseError, match=r"rolled back: model\.shop\.orders: .*missing"):
        unit.run(con, "CREATE TABLE b (i INT)", None)
    unit.end(None)
    assert _tables(profile) == [], "whatever the events said"


@pytest.mark.usefixtures("_in_a_node")
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE DATABASE shop", "unit: branch"),
        ("/* dbt */ COMMIT; CREATE TABLE b (i INT)", "Commit can't be run here"),
        ("ROLLBACK", "Rollback can't be run here"),
        ("BEGIN", "Begin can't be run here"),
        ("USE BRANCH main", "UseBranch can't be run here"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_nothing_ends_a_build_before_its_end(
    tmp_path: Path, statement: str, said: str, first: bool
) -> None:
    profile = _profile(tmp_path, unit="build")
    unit = units.unit_of(profile, "build")
    con = unit.take()
    if not first:
        unit.run(con, "CREATE TABLE a (i INT)", None)
    with pytest.raises(DbtDatabaseError, match=said):
        unit.run(con, statement, None)
    unit.end("model.shop.orders: error")
    with txlake.dbapi.connect(profile.warehouse) as reader:
        assert reader.execute("SHOW DATABASES").fetchall() == [("default",)]
        assert reader.execute("SHOW TABLES").fetchall() == []


@pytest.mark.usefixtures("_in_a_node")
@pytest.mark.parametrize(("fault", "kept"), [(None, ["a", "v"]), ("test.shop.unique: fail", [])])
def test_a_view_is_part_of_its_build(tmp_path: Path, fault: str | None, kept: list[str]) -> None:
    profile = _profile(tmp_path, unit="build")
    unit = units.unit_of(profile, "build")
    con = unit.take()
    unit.run(con, "CREATE TABLE a (i INT)", None)
    unit.run(con, "CREATE VIEW v AS SELECT i FROM a", None)
    assert _tables(profile) == _views(profile) == []
    unit.end(fault)
    assert [*_tables(profile), *_views(profile)] == kept


def test_dbt_looks_around_before_a_build_begins(tmp_path: Path) -> None:
    profile = _profile(tmp_path, unit="build")
    unit = units.unit_of(profile, "build")
    con = unit.take()
    unit.run(con, "SHOW TABLES", None)
    unit.run(con, "CREATE DATABASE IF NOT EXISTS shop", None)
    assert not con.in_transaction
    unit.end("KeyboardInterrupt")


def test_a_branch_is_published(tmp_path: Path) -> None:
    profile = _profile(tmp_path, unit="branch")
    unit = units.unit_of(profile, "build")
    one, two = unit.take(), unit.take()
    unit.begin(one)
    unit.run(one, "CREATE TABLE a (i INT)", None)
    unit.commit(one)
    assert unit.run(two, "SHOW TABLES", None).fetchall() == [("default", "a", False)]
    assert _tables(profile) == []
    for statement in ("USE BRANCH main", "DROP BRANCH b", "PUBLISH BRANCH b", "REBASE BRANCH b"):
        with pytest.raises(DbtDatabaseError, match="can't be run here"):
            unit.run(one, statement, None)
    unit.give_back(one)
    unit.give_back(two)
    unit.end(None)
    assert _tables(profile) == ["a"]
    unit.end(None)


@pytest.mark.parametrize(("after", "kept"), [("keep", 1), ("drop", 0)])
def test_a_branch_with_a_fault(tmp_path: Path, after: str, kept: int) -> None:
    profile = _profile(tmp_path, unit="branch", failed_branch=after)
    unit = units.unit_of(profile, "build")
    con = unit.take()
    unit.run(con, "CREATE TABLE a (i INT)", None)
    unit.give_back(con)
    unit.end("test.shop.unique: fail")
    assert _tables(profile) == []
    with txlake.dbapi.connect(profile.warehouse) as reader:
        assert len(reader.execute("SHOW BRANCHES").fetchall()) == kept


def test_a_command_that_opened_nothing_makes_no_branch(tmp_path: Path) -> None:
    profile = _profile(tmp_path, unit="branch")
    units.unit_of(profile, "build").end(None)
    with txlake.dbapi.connect(profile.warehouse) as reader:
        assert reader.execute("SHOW BRANCHES").fetchall() == []


# --- events ---------------------------------------------------------------------------------------


def _event(name: str, **data: Any) -> Any:
    return SimpleNamespace(info=SimpleNamespace(name=name), data=SimpleNamespace(**data))


def _finished(node: str, status: str, kind: str = "table") -> Any:
    return _event(
        "NodeFinished",
        node_info=SimpleNamespace(unique_id=node, materialized=kind),
        run_result=SimpleNamespace(status=status),
    )


@pytest.fixture
def outcome() -> Outcome:
    made = Outcome()
    made.note(_event("ConcurrencyLine", node_count=2))
    return made


def test_all_nodes_that_were_announced_have_to_pass(outcome: Outcome) -> None:
    outcome.note(_finished("model.a", "success"))
    outcome.note(_finished("model.c", "success", "ephemeral"))
    assert outcome.fault() == "1 of 2 nodes were run"
    outcome.note(_finished("test.b", "warn"))
    assert outcome.fault() is None


@pytest.mark.parametrize("status", ["error", "fail", "skipped", "partial success", "runtime error"])
def test_one_bad_node_is_a_fault(outcome: Outcome, status: str) -> None:
    for event in (
        _finished("model.a", "success"),
        _finished("model.b", "success"),
        _finished("test.c", status),
        _finished("test.c", "pass"),
    ):
        outcome.note(event)
    assert outcome.fault() == f"test.c: {status}"


def test_a_failed_hook_is_a_fault(outcome: Outcome) -> None:
    outcome.note(_finished("model.a", "success"))
    outcome.note(_finished("model.b", "success"))
    outcome.note(_event("LogHookEndLine", statement="shop.on-run-end.0", status="success"))
    assert outcome.fault() is None
    outcome.note(_event("LogHookEndLine", statement="shop.on-run-end.1", status="error"))
    assert outcome.fault() == "shop.on-run-end.1: error"


def test_an_exception_on_its_way_is_a_fault(outcome: Outcome) -> None:
    outcome.note(_finished("model.a", "success"))
    outcome.note(_finished("model.b", "success"))
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert outcome.fault() == "KeyboardInterrupt"
    assert outcome.fault() is None


def test_without_events_nothing_has_passed() -> None:
    assert Outcome().fault() == "0 of no nodes were run"


# --- columns --------------------------------------------------------------------------------------


def test_constraints_of_columns_become_those_of_the_table() -> None:
    rendered = TxlakeAdapter.render_raw_columns_constraints(
        {
            "id": {
                "name": "id",
                "data_type": "bigint",
                "constraints": [
                    {"type": "not_null"},
                    {"type": "primary_key"},
                    {"type": "check", "name": "positive", "expression": "id > 0"},
                ],
            },
            "from": {"name": "from", "data_type": "string", "quote": True, "constraints": []},
        }
    )
    assert rendered == [
        "id bigint not null",
        "`from` string",
        "primary key (id)",
        "constraint positive check (id > 0)",
    ]


def test_a_check_without_a_name_gets_one() -> None:
    [rendered] = TxlakeAdapter.render_raw_model_constraints(
        [{"type": "check", "expression": "id > 0"}]
    )
    assert rendered.startswith("constraint check_")
    assert rendered.endswith(" check (id > 0)")
