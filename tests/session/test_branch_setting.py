"""Iceberg's setting `spark.wap.branch`: it chooses the branch for as long as it is set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import txlake
from tests.session.branch_lake import Lake, tables_of
from txlake.commands import HANDLERS
from txlake.errors import InvalidRequest
from txlake.lake.lake import LakeSession
from txlake.session.branches import drop_branch
from txlake.session.instants import changes_of
from txlake.session.membership.attachment import attach, detach
from txlake.session.session import Session
from txlake.sql import parse
from txlake.sql.statements import SparkCommand

KEY = "spark.wap.branch"


class Set:
    """The setting of the Spark session that the lake's sessions use."""

    def __init__(self) -> None:
        self.value = ""

    def setting(self, key: str, default: str) -> str:
        return self.value or default if key == KEY else default


@pytest.fixture
def conf(monkeypatch: pytest.MonkeyPatch) -> Set:
    made = Set()
    monkeypatch.setattr(
        "txlake.spark.plane.SparkPlane.setting", lambda _, key, default: made.setting(key, default)
    )
    return made


@pytest.fixture
def lake(conf: Set) -> Iterator[Lake]:
    """A lake with a branch x, whose own session follows the setting."""
    made = Lake()
    made.session = Session(made.engine, HANDLERS, follows_setting=True)
    made.do("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1); CREATE BRANCH x")
    yield made
    made.session.close()


def ids(lake: Lake, session: Session | None = None) -> list[object]:
    return [row[0] for row in lake.rows("SELECT id FROM t", session)]


def test_it_chooses_for_reads_and_writes_while_it_is_set(lake: Lake, conf: Set) -> None:
    conf.value = "X"
    lake.do("INSERT INTO t VALUES (2); CREATE TABLE made (id INT)")
    assert ids(lake) == [1, 2]
    lake.do("INSERT INTO t VALUES (3)")
    conf.value = "main"
    assert ids(lake) == [1]
    lake.do("CREATE BRANCH y; USE BRANCH main")
    conf.value = ""
    assert ids(lake) == [1]
    lake.do("USE BRANCH y; INSERT INTO t VALUES (9)")
    conf.value = "x"
    assert ids(lake) == [1, 2, 3]
    conf.value = ""
    assert ids(lake) == [1, 9], "what USE BRANCH chose"
    conf.value = "y"
    lake.do("INSERT INTO t VALUES (10)")
    conf.value = ""
    assert ids(lake) == [1, 9, 10]


def test_it_holds_for_all_that_reads_names(lake: Lake, conf: Set) -> None:
    conf.value = "x"
    lake.do("CREATE TABLE made (id INT); DROP TABLE t")
    other = lake.session.another()
    [made] = parse("SELECT * FROM made")
    table = made.query.references[0].table  # type: ignore[union-attr]
    assert other.exists(table)
    assert lake.session.snapshot(table).version == 0
    assert tables_of(lake) == ["made"]
    fresh = Session(lake.engine, HANDLERS, follows_setting=True)
    with pytest.raises(InvalidRequest, match="'x'"):
        detach(fresh, "made")
    fresh = Session(lake.engine, HANDLERS, follows_setting=True)
    outside = lake.path_table(f"{lake.place}-outside")
    with pytest.raises(InvalidRequest, match="'x'"):
        attach(fresh, outside, "placed")
    fresh = Session(lake.engine, HANDLERS, follows_setting=True)
    newest = lake.rows("SHOW BRANCHES", fresh)
    assert newest
    conf.value = "nowhere"
    with pytest.raises(InvalidRequest, match="no such branch"):
        changes_of(fresh, 1)
    with pytest.raises(InvalidRequest, match="no such branch"):
        fresh.catalog_view("txlake.commits")


@pytest.mark.parametrize("name", ["nowhere", "gone", "night"])
def test_no_branch_is_an_error_that_says_the_way_out(lake: Lake, conf: Set, name: str) -> None:
    lake.do("CREATE TAG night; CREATE BRANCH gone; DROP BRANCH gone")
    conf.value = name
    way_out = "which is a tag" if name == "night" else f"no such branch.* CREATE BRANCH {name}"
    for text in ("INSERT INTO t VALUES (2)", "SELECT * FROM t", "BEGIN", "CREATE TAG other"):
        with pytest.raises(InvalidRequest, match=rf"{KEY} is '{name}'.*{way_out}"):
            lake.do(text)
    with pytest.raises(InvalidRequest, match=f"RESET {KEY}"):
        LakeSession(lake.session).begin()
    lake.rows("SHOW BRANCHES")
    conf.value = ""
    assert ids(lake) == [1]


def test_the_branch_that_it_names_may_be_created_first_thing(lake: Lake, conf: Set) -> None:
    conf.value = "new"
    lake.do("CREATE BRANCH IF NOT EXISTS new; INSERT INTO t VALUES (2)")
    conf.value = ""
    assert ids(lake) == [1]
    conf.value = "new"
    assert ids(lake) == [1, 2]
    lake.do("CREATE BRANCH newer")
    conf.value = "newer"
    assert ids(lake) == [1, 2], "it began at the branch that was set"


def test_the_branch_that_it_names_is_not_dropped(lake: Lake, conf: Set) -> None:
    conf.value = "x"
    with pytest.raises(InvalidRequest, match="this session uses it"):
        drop_branch(lake.session, "x")
    conf.value = "nowhere"
    drop_branch(lake.session, "x")


def test_it_means_the_branch_that_has_the_name_now(lake: Lake, conf: Set) -> None:
    conf.value = "x"
    lake.do("INSERT INTO t VALUES (2)")
    with pytest.raises(InvalidRequest, match=f"this session uses it.* RESET {KEY}"):
        lake.do("DROP BRANCH x")
    lake.do("REBASE BRANCH x; INSERT INTO t VALUES (3); PUBLISH BRANCH x")
    with pytest.raises(InvalidRequest, match="it was published or dropped"):
        lake.do("INSERT INTO t VALUES (4)")
    lake.do("CREATE BRANCH x; INSERT INTO t VALUES (5)")
    conf.value = ""
    assert ids(lake) == [1, 2, 3]


def test_a_transaction_stays_where_it_began(lake: Lake, conf: Set) -> None:
    lake.do("BEGIN; INSERT INTO t VALUES (2)")
    conf.value = "x"
    with pytest.raises(InvalidRequest, match=r"'x' now.* belongs to 'main'.*COMMIT or ROLLBACK"):
        lake.do("INSERT INTO t VALUES (3)")
    lake.do("ROLLBACK; BEGIN; INSERT INTO t VALUES (4)")
    conf.value = ""
    with pytest.raises(InvalidRequest, match=r"'unset' now.* belongs to 'x'"):
        lake.do("INSERT INTO t VALUES (5)")
    lake.do("ROLLBACK; BEGIN; INSERT INTO t VALUES (6)")
    conf.value = "MAIN"
    lake.do("INSERT INTO t VALUES (7)")
    conf.value = "x"
    lake.do("COMMIT")
    assert ids(lake) == [1]
    conf.value = ""
    assert ids(lake) == [1, 6, 7]


def test_a_transaction_beside_the_session_stays_where_it_began(lake: Lake, conf: Set) -> None:
    beside = LakeSession(lake.session).begin()
    conf.value = "x"
    lake.do("INSERT INTO t VALUES (2)")
    with pytest.raises(InvalidRequest, match="belongs to 'main'"):
        lake.run_in(beside._own_transaction(), "INSERT INTO t VALUES (3)")
    conf.value = ""
    beside = LakeSession(lake.session).begin()
    lake.do("USE BRANCH x")
    lake.run_in(beside._own_transaction(), "INSERT INTO t VALUES (4)")
    beside.commit()
    assert ids(lake) == [1, 2]
    lake.do("USE BRANCH main")
    assert ids(lake) == [1, 4]


def test_use_branch_does_not_pass_it_over(lake: Lake, conf: Set) -> None:
    lake.do("CREATE BRANCH y")
    conf.value = "x"
    for name in ("y", "main"):
        with pytest.raises(InvalidRequest, match=rf"USE BRANCH {name}: {KEY} is 'x'.*RESET {KEY}"):
            lake.do(f"USE BRANCH {name}")
    lake.do("USE BRANCH x; INSERT INTO t VALUES (2)")
    conf.value = ""
    assert ids(lake) == [1, 2]


def test_settings_can_be_changed_while_it_names_no_branch(lake: Lake, conf: Set) -> None:
    """They are Spark's alone: here there is no Spark, and that is how far they come."""
    conf.value = "nowhere"
    for text in (f"RESET {KEY}", f"SET {KEY} = x"):
        [statement] = parse(text)
        assert isinstance(statement, SparkCommand)
        with pytest.raises(Exception, match="Spark") as caught:
            lake.do(text)
        assert KEY not in str(caught.value)


def test_it_can_be_reset_when_the_time_of_the_branch_is_over(
    lake: Lake, conf: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.do("CREATE BRANCH short RETAIN 1 HOUR")
    conf.value = "short"
    assert ids(lake) == [1]
    now_ms = txlake.system.System.now_ms
    monkeypatch.setattr(txlake.system.System, "now_ms", lambda self: now_ms(self) + 3_600_001)
    with pytest.raises(InvalidRequest, match="branch 'short'"):
        ids(lake)
    with pytest.raises(Exception, match="Spark") as caught:
        lake.do(f"RESET {KEY}")
    assert "short" not in str(caught.value)


def test_a_session_of_a_branch_does_not_follow_it(lake: Lake, conf: Set) -> None:
    x = lake.on("y")
    conf.value = "x"
    with pytest.raises(InvalidRequest, match=r"is 'x', and this session writes on 'y'"):
        lake.do("INSERT INTO t VALUES (9)", x)
    assert ids(lake, x) == [1]
    conf.value = "Y"
    lake.do("INSERT INTO t VALUES (9)", x)
    assert ids(lake, x) == [1, 9]
