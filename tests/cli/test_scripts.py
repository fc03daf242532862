"""What a script runs, in which order, and what it runs again after a conflict."""

from __future__ import annotations

import io
import json

import pytest

from tests.cli.fakes import NOTHING, FakeSystem, FakeWorker, rows
from txlake.cli.output import JsonOutput
from txlake.cli.scripts import ScriptRunner
from txlake.errors import (
    ConcurrentAppendException,
    Conflict,
    Deadlock,
    Evidence,
    InvalidRequest,
    OutcomeUnknown,
    SerializableIsolationViolation,
)
from txlake.sql import parse_script

LOST = ConcurrentAppendException("lost")


class Ran:
    """A script that was run: what the worker did, what was printed, and how it ended."""

    def __init__(self, worker: FakeWorker, text: str, retries: int = 0) -> None:
        out, err = io.StringIO(), io.StringIO()
        self.system = FakeSystem()
        runner = ScriptRunner(
            worker=worker, output=JsonOutput(out, err), system=self.system, retries=retries
        )
        self.error: BaseException | None = None
        try:
            runner.run_script(parse_script(text))
        except BaseException as error:
            self.error = error
        self.current = runner.current
        self.ran = worker.ran
        self.shown = [json.loads(line) for line in out.getvalue().splitlines()]
        self.notes = [json.loads(line)["note"] for line in err.getvalue().splitlines()]


def statements(ran: Ran) -> list[str]:
    return [one["statement"] for one in ran.shown]


def test_statements_run_in_order_and_are_shown() -> None:
    ran = Ran(FakeWorker({"SELECT 1": [rows(1)]}), "USE d;\nSELECT 1;")
    assert ran.error is None
    assert ran.ran == ["USE d", "SELECT 1"]
    assert [(one["statement"], one["line"], one["rows"]) for one in ran.shown] == [
        ("USE d", 1, []),
        ("SELECT 1", 2, [{"v": 1}]),
    ]
    assert ran.notes == []


def test_the_first_error_ends_it_and_rolls_back() -> None:
    worker = FakeWorker({"DELETE FROM T": [InvalidRequest("no")]})
    ran = Ran(worker, "BEGIN; SELECT 1;\nDELETE FROM t; COMMIT; SELECT 2")
    assert isinstance(ran.error, InvalidRequest)
    assert str(ran.error) == "no"
    assert ran.current is not None
    assert ran.current.line == 2
    assert ran.ran == ["BEGIN", "SELECT 1", "DELETE FROM t", "ROLLBACK!"]
    assert statements(ran) == ["BEGIN", "SELECT 1"]
    assert ran.notes == ["the open transaction was rolled back: nothing of it is kept"]


def test_a_transaction_that_is_left_open_is_rolled_back_and_said() -> None:
    ran = Ran(FakeWorker(), "SELECT 1; BEGIN; DELETE FROM t;")
    assert isinstance(ran.error, InvalidRequest)
    assert "ends inside a transaction" in str(ran.error)
    assert ran.ran[-1] == "ROLLBACK!"
    assert len(ran.notes) == 1


def test_an_interrupt_rolls_back() -> None:
    ran = Ran(FakeWorker({"SELECT 1": [KeyboardInterrupt()]}), "BEGIN; SELECT 1; COMMIT")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert ran.ran == ["BEGIN", "SELECT 1", "ROLLBACK!"]


def test_a_conflict_ends_it_where_nothing_is_to_be_tried_again() -> None:
    ran = Ran(FakeWorker({"COMMIT": [LOST]}), "BEGIN; DELETE FROM t; COMMIT; SELECT 2")
    assert ran.error is LOST
    assert ran.ran == ["BEGIN", "DELETE FROM t", "COMMIT"]
    assert ran.notes == []  # COMMIT ended it


def test_an_autocommit_statement_is_run_again_alone() -> None:
    worker = FakeWorker({"DELETE FROM T": [LOST, LOST, rows(3)]})
    ran = Ran(worker, "INSERT INTO t VALUES (1); DELETE FROM t; SELECT 1", retries=2)
    assert ran.error is None
    assert ran.ran == [
        "INSERT INTO t VALUES (1)",
        "DELETE FROM t",
        "DELETE FROM t",
        "DELETE FROM t",
        "SELECT 1",
    ]
    assert statements(ran) == ["INSERT INTO t VALUES (1)", "DELETE FROM t", "SELECT 1"]
    assert ran.notes == [
        "ConcurrentAppendException: run again from line 1 (1 of 2)",
        "ConcurrentAppendException: run again from line 1 (2 of 2)",
    ]
    assert ran.system.waits == [7.5, 15.0]


def test_a_transaction_is_run_again_from_its_begin_and_what_was_committed_is_not() -> None:
    violation = SerializableIsolationViolation("read")
    worker = FakeWorker({"COMMIT": [NOTHING, violation, NOTHING], "SELECT 1": [rows(1), rows(2)]})
    text = "BEGIN; TRUNCATE TABLE a; COMMIT;\nBEGIN;\nSELECT 1; DELETE FROM t; COMMIT; SELECT 3"
    ran = Ran(worker, text, retries=1)
    assert ran.error is None
    first = ["BEGIN", "TRUNCATE TABLE a", "COMMIT"]
    second = ["BEGIN", "SELECT 1", "DELETE FROM t", "COMMIT"]
    assert ran.ran == [*first, *second, *second, "SELECT 3"]
    # What the lost attempt read isn't shown: it never happened.
    assert statements(ran) == [*first, *second, "SELECT 3"]
    assert [one["rows"] for one in ran.shown if one["statement"] == "SELECT 1"] == [[{"v": 2}]]
    assert ran.notes == ["SerializableIsolationViolation: run again from line 2 (1 of 1)"]


def test_a_statement_that_loses_inside_a_transaction_ends_it_first() -> None:
    worker = FakeWorker({"DELETE FROM T": [LOST, rows(1)]})
    ran = Ran(worker, "BEGIN; DELETE FROM t; COMMIT", retries=1)
    assert ran.error is None
    assert ran.ran == ["BEGIN", "DELETE FROM t", "ROLLBACK!", "BEGIN", "DELETE FROM t", "COMMIT"]


def test_every_transaction_has_its_own_attempts() -> None:
    worker = FakeWorker({"COMMIT": [LOST, NOTHING, LOST, NOTHING]})
    ran = Ran(worker, "BEGIN; COMMIT; BEGIN; COMMIT", retries=1)
    assert ran.error is None
    assert ran.ran == ["BEGIN", "COMMIT"] * 4


def test_the_last_conflict_is_the_error_and_its_attempt_is_shown() -> None:
    worker = FakeWorker({"COMMIT": [LOST], "SELECT 1": [rows(1), rows(2), rows(3)]})
    ran = Ran(worker, "BEGIN; SELECT 1; COMMIT", retries=1)
    assert ran.error is LOST
    assert [one["rows"] for one in ran.shown] == [[], [{"v": 2}]]


def test_what_would_be_met_again_is_not_run_again() -> None:
    own = Deadlock("waits for itself", evidence_of(retry=False, winning_version=-1))
    ran = Ran(FakeWorker({"DELETE FROM T": [own, rows(1)]}), "DELETE FROM t", retries=2)
    assert ran.error is own
    assert ran.notes == []
    lost = Conflict("created by both", evidence_of(retry=False, winning_version=0))
    ran = Ran(FakeWorker({"DELETE FROM T": [lost, rows(1)]}), "DELETE FROM t", retries=2)
    assert ran.error is None


def evidence_of(*, retry: bool, winning_version: int) -> Evidence:
    return Evidence(table="t", read_version=-1, winning_version=winning_version, retry=retry)


def test_a_block_is_run_again_as_one() -> None:
    text = "BEGIN ATOMIC TRUNCATE TABLE t; END"
    ran = Ran(FakeWorker({text.upper(): [LOST, NOTHING]}), f"SELECT 1; {text}; SELECT 2", retries=1)
    assert ran.error is None
    assert ran.ran == ["SELECT 1", text, text, "SELECT 2"]


@pytest.mark.parametrize("error", [OutcomeUnknown("who knows"), InvalidRequest("no")])
def test_nothing_but_a_conflict_is_run_again(error: Exception) -> None:
    ran = Ran(FakeWorker({"COMMIT": [error]}), "BEGIN; DELETE FROM t; COMMIT", retries=5)
    assert ran.error is error
    assert ran.ran.count("BEGIN") == 1


def test_the_database_is_again_the_one_before_the_transaction() -> None:
    worker = FakeWorker({"COMMIT": [LOST, NOTHING]})
    used: list[str] = []
    run = worker.run

    def noting(text: str, rows_max: int | None) -> object:
        if text.startswith("INSERT"):
            used.append(worker.now.database)
        return run(text, rows_max)

    worker.run = noting  # type: ignore[method-assign, assignment]
    ran = Ran(
        worker,
        "USE one; BEGIN; INSERT INTO t VALUES (1); USE two; INSERT INTO t VALUES (2); COMMIT",
        retries=1,
    )
    assert ran.error is None
    assert used == ["one", "two", "one", "two"]
    assert worker.now.database == "two"


@pytest.mark.parametrize(
    ("inside", "is_run_again"),
    [
        ("SET spark.sql.ansi.enabled = false", False),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", False),
        ("BEGIN ATOMIC SET a.b = 1; END", False),
        ("EXPLAIN SELECT 1", True),
        ("SELECT 1", True),
    ],
)
def test_what_changed_sparks_session_is_not_run_again(inside: str, is_run_again: bool) -> None:
    if inside.startswith("BEGIN"):
        worker = FakeWorker({inside.upper(): [LOST, NOTHING]})
        ran = Ran(worker, inside, retries=1)
    else:
        worker = FakeWorker({"COMMIT": [LOST, NOTHING]})
        ran = Ran(worker, f"BEGIN; {inside}; COMMIT", retries=1)
    assert isinstance(ran.error, Conflict) is not is_run_again
    assert any("not run again: line 1" in note for note in ran.notes) is not is_run_again


def test_spark_commands_before_the_transaction_do_no_harm() -> None:
    worker = FakeWorker({"COMMIT": [LOST, NOTHING]})
    ran = Ran(worker, "SET a.b = 1; BEGIN; COMMIT", retries=1)
    assert ran.error is None
    assert ran.ran == ["SET a.b = 1", "BEGIN", "COMMIT", "BEGIN", "COMMIT"]


def test_a_transaction_of_before_is_not_run_again_and_the_next_one_is() -> None:
    worker = FakeWorker({"COMMIT": [LOST]})
    out = JsonOutput(io.StringIO(), io.StringIO())
    runner = ScriptRunner(worker=worker, output=out, system=FakeSystem(), retries=3)
    runner.run(parse_script("BEGIN"))
    with pytest.raises(ConcurrentAppendException):
        runner.run(parse_script("SELECT 1; COMMIT"))
    assert worker.ran == ["BEGIN", "SELECT 1", "COMMIT"]
    worker.answers["COMMIT"] = [NOTHING, LOST, NOTHING]
    runner.run(parse_script("BEGIN"))
    runner.run(parse_script("COMMIT; BEGIN; SELECT 1; COMMIT"))
    again = ["BEGIN", "SELECT 1", "COMMIT"]
    assert worker.ran[3:] == ["BEGIN", "COMMIT", *again, *again]
