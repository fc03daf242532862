"""The prompt: what it shows, what the keys do, and its own commands. Keys come through a pipe."""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.cli.fakes import NOTHING, FakeWorker, rows
from txlake.cli.completion import SqlCompleter
from txlake.cli.output import TableOutput
from txlake.cli.prompt import Prompt, is_ready_to_run, prompt_text
from txlake.cli.worker import SessionState
from txlake.errors import ConcurrentAppendException, InvalidRequest, Unavailable

ENTER, CONTROL_C, CONTROL_D = "\r", "\x03", "\x04"


class Screen:
    """What a prompt printed: `out` and `err`."""

    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        self.drawn = TableOutput(10, self._out, self._err)

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def err(self) -> str:
        return self._err.getvalue()


@contextmanager
def prompting(
    worker: FakeWorker, keys: str, folder: Path | None = None
) -> Iterator[tuple[Prompt, Screen]]:
    screen = Screen()
    with create_pipe_input() as pipe:
        pipe.send_text(keys)
        yield (
            Prompt(worker, screen.drawn, state_folder=folder, keys=pipe, screen=DummyOutput()),
            screen,
        )


def typed(worker: FakeWorker, *lines: str, end: str = CONTROL_D) -> Screen:
    """Types lines, each with Enter, and leaves."""
    with prompting(worker, "".join(line + ENTER for line in lines) + end) as (prompt, screen):
        prompt.run()
    return screen


def test_statements_run_when_they_are_closed() -> None:
    worker = FakeWorker({"SELECT 1": [rows(1)]})
    screen = typed(worker, "SELECT", " 1;", "", "USE d; SELECT 1;")
    assert worker.ran == ["SELECT\n 1", "USE d", "SELECT 1"]
    assert "OK (0.00 s)" in screen.out
    assert "| 1 |" in screen.out


def test_a_block_is_typed_over_several_lines() -> None:
    worker = FakeWorker()
    typed(worker, "BEGIN ATOMIC", "TRUNCATE TABLE t;", "END;")
    assert worker.ran == ["BEGIN ATOMIC\nTRUNCATE TABLE t;\nEND"]


@pytest.mark.parametrize("word", [r"\q", "quit", "exit;", "QUIT"])
def test_words_that_leave(word: str) -> None:
    worker = FakeWorker()
    typed(worker, word, "SELECT 1;", end="")
    assert worker.ran == []


def test_leaving_rolls_an_open_transaction_back_and_says_so() -> None:
    worker = FakeWorker()
    screen = typed(worker, "BEGIN;", "DELETE FROM t;")
    assert worker.ran == ["BEGIN", "DELETE FROM t", "ROLLBACK!"]
    assert "the open transaction was rolled back" in screen.err
    assert "rolled back" not in typed(FakeWorker(), "SELECT 1;").err


def test_control_c_forgets_what_is_typed() -> None:
    worker = FakeWorker()
    typed(worker, "SELECT 1;", end=f"DELETE FROM{CONTROL_C}SELECT 2;{ENTER}{CONTROL_D}")
    assert worker.ran == ["SELECT 1", "SELECT 2"]


def test_a_statement_that_fails_is_shown_and_the_prompt_goes_on() -> None:
    worker = FakeWorker({"SELECT 1": [InvalidRequest("no such thing")]})
    screen = typed(worker, "SELECT 1;", "SELECT 2;")
    assert worker.ran == ["SELECT 1", "SELECT 2"]
    assert "InvalidRequest: no such thing" in screen.err
    assert "ROLLBACK" not in screen.err
    assert worker.misread_errors == []


def test_a_failed_transaction_says_how_it_is_ended() -> None:
    worker = FakeWorker({"SELECT 1": [InvalidRequest("no such thing")]})
    screen = typed(worker, "BEGIN;", "SELECT 1;", "ROLLBACK;")
    assert "the transaction was rolled back; end it with ROLLBACK" in screen.err
    assert worker.ran == ["BEGIN", "SELECT 1", "ROLLBACK"]


def test_what_is_not_understood_fails_the_transaction() -> None:
    worker = FakeWorker()
    screen = typed(worker, "BEGIN;", "SELEC 1;")
    assert "expected a statement" in screen.err
    assert len(worker.misread_errors) == 1
    assert "end it with ROLLBACK" in screen.err


def test_an_interrupted_statement_fails_its_transaction() -> None:
    worker = FakeWorker({"DELETE FROM T": [KeyboardInterrupt()]})
    screen = typed(worker, "BEGIN;", "DELETE FROM t;", "SELECT 1;")
    assert "interrupted" in screen.err
    assert "end it with ROLLBACK" in screen.err
    assert worker.ran[:3] == ["BEGIN", "DELETE FROM t", "SELECT 1"]


def test_what_became_of_an_interrupted_statement_is_said() -> None:
    worker = FakeWorker({"DELETE FROM T": [KeyboardInterrupt("too late, it had finished")]})
    assert "interrupted: too late, it had finished" in typed(worker, "DELETE FROM t;").err


def test_a_statement_is_run_again_after_a_conflict_and_a_typed_transaction_is_not() -> None:
    lost = ConcurrentAppendException("lost")
    worker = FakeWorker({"DELETE FROM T": [lost, NOTHING], "COMMIT": [lost]})
    screen = Screen()
    with create_pipe_input() as pipe:
        keys = ("DELETE FROM t;", "BEGIN;", "SELECT 1;", "COMMIT;")
        pipe.send_text("".join(line + ENTER for line in keys) + CONTROL_D)
        Prompt(worker, screen.drawn, retries=1, keys=pipe, screen=DummyOutput()).run()
    assert worker.ran == ["DELETE FROM t", "DELETE FROM t", "BEGIN", "SELECT 1", "COMMIT"]
    assert "run again from line 1 (1 of 1)" in screen.err
    assert "ConcurrentAppendException: lost" in screen.err


def test_its_own_commands() -> None:
    worker = FakeWorker()
    screen = typed(
        worker, r"\d", r"\d a.t", r"\d t;", r"\l", r"\h t", r"\?", "help;", r"\timing", r"\wrong x"
    )
    assert worker.ran == [
        "SHOW TABLES",
        "DESCRIBE TABLE a.t",
        "DESCRIBE TABLE t",
        "SHOW DATABASES",
        "DESCRIBE HISTORY t",
    ]
    assert screen.err.count("Ctrl-C cancels what is typed") == 2
    assert "timing is off" in screen.err
    assert r"\wrong x is no command" in screen.err
    assert worker.misread_errors == []


@pytest.mark.parametrize(
    ("standing", "text"),
    [
        (SessionState(database="sales", isolation="snapshot"), "sales> "),
        (
            SessionState(database="sales", isolation="serializable", transaction="1"),
            "sales*[serializable]> ",
        ),
        (
            SessionState(database="sales", isolation="snapshot", transaction="1", failed=True),
            "sales![snapshot]> ",
        ),
        (
            SessionState(database="sales", isolation="snapshot", transaction="1", read_only=True),
            "sales*[snapshot, read only]> ",
        ),
        (
            SessionState(database="sales", isolation="snapshot", branch="nightly/1"),
            "sales@nightly/1> ",
        ),
        (
            SessionState(database="sales", isolation="snapshot", transaction="1", branch="x"),
            "sales@x*[snapshot]> ",
        ),
    ],
)
def test_what_the_prompt_shows(standing: SessionState, text: str) -> None:
    assert prompt_text(standing) == text


def test_the_prompt_follows_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker({"SELECT 1": [InvalidRequest("no")]})
    shown = []
    lines = iter(["BEGIN;", "SELECT 1;", "ROLLBACK;"])

    def read(prompt: str) -> str:
        shown.append(prompt)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    with prompting(worker, "") as (prompt, _):
        monkeypatch.setattr(prompt._reader, "prompt", read)
        prompt.run()
    assert shown == [
        "default> ",
        "default*[write_serializable]> ",
        "default![write_serializable]> ",
        "default> ",
    ]


def test_a_catalog_that_is_away_does_not_end_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker(tables=["t"])

    def away() -> SessionState:
        raise Unavailable("the catalog can't be reached")

    monkeypatch.setattr(worker, "state", away)
    screen = typed(worker, "SELECT 1;")
    assert "Unavailable: the catalog can't be reached" in screen.err


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        (r"\d t", True),
        ("help", True),
        ("SELECT '", False),
    ],
)
def test_when_enter_runs_the_text(text: str, whole: bool) -> None:
    assert is_ready_to_run(text) is whole


def test_lines_are_remembered_in_a_file_of_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "txlake"
    with prompting(FakeWorker(), f"SELECT 41;{ENTER}{CONTROL_D}", folder) as (prompt, _):
        prompt.run()
    assert "+SELECT 41;" in (folder / "history").read_text()
    assert stat.S_IMODE((folder / "history").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_written_only_costs_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    worker = FakeWorker()
    keys = f"SELECT 41;{ENTER}{CONTROL_D}"
    with prompting(worker, keys, tmp_path / "file" / "txlake") as (prompt, _):
        prompt.run()
    assert worker.ran == ["SELECT 41"]


def completions(text: str, *names: str) -> list[str]:
    completer = SqlCompleter(lambda: names, lambda: ["2026-01", "Nightly", "nightly/2", "other"])
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


def test_what_is_completed() -> None:
    assert completions("SELECT * FROM ORD", "orders", "stock") == ["orders", "ORDER"]
    assert completions("select * from ord", "orders") == ["orders", "order"]
    assert completions("SELECT * FROM sales.o", "sales.orders", "orders") == ["sales.orders"]
    assert completions("SELECT ", "orders") == []
    assert "SERIALIZABLE" in completions("BEGIN ISOLATION LEVEL SER")


def test_branches_and_tags_are_completed_where_one_is_named() -> None:
    """In backquotes where they need them; tables and keywords aren't meant there."""
    nightly = ["Nightly", "`nightly/2`"]
    assert completions("USE BRANCH ni", "nights") == nightly
    assert completions("explain publish branch NI") == nightly
    assert completions("DROP BRANCH IF EXISTS n") == nightly
    assert completions("USE BRANCH `nightly/") == ["`nightly/2`"]
    assert completions("DROP TAG ") == ["`2026-01`", *nightly, "other"]
    assert completions("SELECT * FROM branch ni", "nights") == nightly
    assert completions("USE branchx ni", "nights") == ["nights"]
    assert completions("PUBLISH BRANCH x PER", "nights") == ["PER"]
    for typed in ("REB", "BRANCHE", "PUB", "RETA", "INSTAN", "TAGS", "PER"):
        assert any(found.startswith(typed) for found in completions(typed)), typed


def test_the_prompt_completes_the_lakes_names() -> None:
    worker = FakeWorker(tables=["orders_of_the_shop"], known_branches=["nightly"])
    with prompting(worker, "") as (prompt, _):
        completer = prompt._reader.completer
    assert completer is not None
    for typed, whole in (("FROM orders_", "orders_of_the_shop"), ("USE BRANCH n", "nightly")):
        found = completer.get_completions(Document(typed), CompleteEvent())
        assert [one.text for one in found] == [whole]
