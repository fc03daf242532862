"""The commands and their arguments: what is asked of the lake, what is printed, how they end."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cli.fakes import FakeWorker, rows
from txlake import __version__
from txlake.cli import lakes
from txlake.cli.app import app
from txlake.cli.lakes import ConnectionSettings
from txlake.errors import (
    ConcurrentAppendException,
    CorruptTable,
    Deadlock,
    InvalidRequest,
    LockTimeout,
    OutcomeUnknown,
    TxlakeError,
    UnsupportedFeature,
)
from txlake.session.views.results import Column, mappings_result
from txlake.session.views.results import Result as Rows


class Lake:
    """What the commands are run against: a worker, and the places that were opened."""

    def __init__(self) -> None:
        self.worker = FakeWorker()
        self.places: list[ConnectionSettings] = []

    @contextmanager
    def lake_worker(self, place: ConnectionSettings) -> Iterator[FakeWorker]:
        self.places.append(place)
        yield self.worker

    def listing(self, place: ConnectionSettings, locations: Sequence[str] = ()) -> Rows:
        self.places.append(place)
        return mappings_result({"id": "string", "age": "int"}, [{"id": "a", "age": 1}, {"id": "b"}])


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake()
    monkeypatch.setattr(lakes, "lake_worker", made.lake_worker)
    for name in ("locks", "transactions", "conflicts", "branches", "recover"):
        monkeypatch.setattr(lakes, name, made.listing)
    monkeypatch.delenv("TXLAKE_LAKE", raising=False)
    monkeypatch.delenv("TXLAKE_CATALOG", raising=False)
    return made


def txlake(*arguments: str, text: str | None = None, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=text, env=env)


def test_statements_come_from_the_arguments_a_file_or_standard_input(
    lake: Lake, tmp_path: Path
) -> None:
    file = tmp_path / "script.sql"
    file.write_text("SELECT 3; SELECT 4\n-- ä", encoding="utf-8-sig")  # as some editors do
    for arguments, text in (
        (["SELECT 1; SELECT 2"], None),
        (["-e", "SELECT 1; SELECT 2"], None),
        (["--execute", "SELECT 1; SELECT 2"], None),
        (["-f", str(file)], None),
        (["-f", "-"], "SELECT 5;"),
        ([], "SELECT 6"),
        ([], "-- nothing"),
        ([""], None),
    ):
        done = txlake("sql", "-l", "wh", *arguments, text=text)
        assert done.exit_code == 0, done.output
    assert lake.worker.ran == [*["SELECT 1", "SELECT 2"] * 3, *(f"SELECT {n}" for n in range(3, 7))]


def test_markers_have_the_texts_that_are_given(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("SELECT :a;\nSELECT :b, ':c', x:d, :a")
    done = txlake("sql", "-l", "wh", "--param", "a=it's", "--param", "b=1=:a", "-f", str(file))
    assert done.exit_code == 0, done.output
    assert lake.worker.ran == [
        "SELECT 'it\\'s'",
        "SELECT '1=:a', ':c', x:d, 'it\\'s'",
    ]
    for given, problem in (
        (["SELECT :a, :b"], "parameter :b has no value"),
        (["SELECT 1"], "no parameter :a, but a value was given"),
    ):
        done = txlake("sql", "-l", "wh", "--param", "a=1", *given)
        assert done.exit_code == 6
        assert problem in done.stderr
    done = txlake("sql", "-l", "wh", "--param", "a=1", "--json", "SELECT 1,\n:a;\nSELECT 2 FROM")
    assert json.loads(done.stderr)["error"]["message"].startswith(
        "the SQL is not understood at line 3, column"
    )


@pytest.mark.parametrize("command", [["txlake"], [sys.executable, "-m", "txlake"]])
def test_which_release_it_is(command: list[str]) -> None:
    folder = os.path.dirname(sys.executable)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, check=True, env=env, timeout=60
    )
    assert done.stdout == f"txlake {__version__}\n"
    assert __version__ == metadata.version("txlake")


def test_which_lake_is_opened(lake: Lake) -> None:
    done = txlake(
        "sql", "--lake", "s3://bucket/wh", "--catalog", "sqlite://", "--isolation", "snapshot",
        "--storage-option", "region=eu", "--storage-option", "key=a=b", "-e", "SELECT 1",
    )  # fmt: skip
    assert done.exit_code == 0
    assert lake.places == [
        ConnectionSettings(
            location="s3://bucket/wh",
            catalog="sqlite://",
            isolation="snapshot",
            storage_options={"region": "eu", "key": "a=b"},
        )
    ]
    txlake("locks", env={"TXLAKE_LAKE": "wh", "TXLAKE_CATALOG": "sqlite:///c"})
    assert lake.places[1] == ConnectionSettings(location="wh", catalog="sqlite:///c")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["sql", "SELECT 1"], "no lake is named: say --lake or set TXLAKE_LAKE"),
        (["sql", "-l", "", "SELECT 1"], "no lake is named"),
        (["history", "t"], "no lake is named"),
        (["locks"], "no lake is named"),
        (["transactions", "--kill", "x"], "no lake is named"),
        (["sql", "-l", "wh", "SELECT 1", "-e", "SELECT 2"], "not several of them"),
        (["sql", "-l", "wh", "-f", "/no/such/file"], "can't be read"),
        (["sql", "-l", "wh", "--retry", "-1", "SELECT 1"], "--retry"),
        (["sql", "-l", "wh", "--storage-option", "x", "SELECT 1"], "expected KEY=VALUE"),
        (["sql", "-l", "wh", "--storage-option", "=x", "SELECT 1"], "expected KEY=VALUE"),
        (["locks", "-l", "wh", "--storage-option", "k=1", "--storage-option", "k=2"], "'k' twice"),
        (["sql", "-l", "wh", "--param", "x", "SELECT :x"], "--param: expected NAME=VALUE"),
        (["sql", "-l", "wh", "--param", "x=1", "--param", "x=2", "SELECT :x"], "'x' twice"),
        (["nope"], "nope"),
    ],
)
def test_wrong_usage_is_said_and_is_2(lake: Lake, arguments: list[str], problem: str) -> None:
    done = txlake(*arguments)
    assert done.exit_code == 2
    assert problem in " ".join(done.stderr.replace("│", " ").split())
    assert lake.places == []


def test_a_file_that_is_no_text_is_wrong_usage(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    done = txlake("sql", "-l", "wh", "-f", str(tmp_path / "bytes"))
    assert done.exit_code == 2
    assert "can't be read" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConcurrentAppendException("lost"), 3),
        (Deadlock("victim"), 3),
        (LockTimeout("late"), 4),
        (OutcomeUnknown("who knows"), 5),
        (InvalidRequest("no"), 6),
        (CorruptTable("broken"), 7),
        (UnsupportedFeature("new"), 8),
        (TxlakeError("else"), 1),
    ],
)
def test_an_error_is_one_message_and_its_exit_code(
    lake: Lake, error: TxlakeError, code: int
) -> None:
    lake.worker.answers["SELECT 2"] = [error]
    done = txlake("sql", "-l", "wh", "SELECT 1;\nSELECT 2; SELECT 3")
    assert done.exit_code == code
    assert done.stderr == f"{type(error).__name__} (line 2): {error}\n"
    assert lake.worker.ran == ["SELECT 1", "SELECT 2"]


def test_an_error_for_programs(lake: Lake) -> None:
    lake.worker.answers = {"SELECT 1": [rows(1)], "SELECT 2": [InvalidRequest("no")]}
    done = txlake("sql", "-l", "wh", "--json", "SELECT 1; SELECT 2")
    assert done.exit_code == 6
    assert json.loads(done.stdout)["rows"] == [{"v": 1}]
    facts = json.loads(done.stderr)["error"]
    assert (facts["name"], facts["exit_code"]) == ("InvalidRequest", 6)
    assert (facts["statement"], facts["line"]) == ("SELECT 2", 1)


def test_what_is_not_understood_is_said_before_anything_runs(lake: Lake) -> None:
    done = txlake("sql", "-l", "wh", "SELECT 1;\nSELEC 2")
    assert done.exit_code == 6
    assert "line 2, column 1" in done.stderr
    assert lake.places == []


def test_an_interrupt_is_130(lake: Lake) -> None:
    lake.worker.answers["SELECT 1"] = [KeyboardInterrupt()]
    done = txlake("sql", "-l", "wh", "SELECT 1")
    assert done.exit_code == 130
    assert done.stderr == "interrupted (line 1)\n"


def test_a_defect_keeps_its_traceback(lake: Lake) -> None:
    lake.worker.answers["SELECT 1"] = [ZeroDivisionError("a defect")]
    done = txlake("sql", "-l", "wh", "SELECT 1")
    assert done.exit_code == 1
    assert isinstance(done.exception, ZeroDivisionError)


def test_how_often_a_conflict_is_tried_again(lake: Lake) -> None:
    lost = ConcurrentAppendException("lost")
    lake.worker.answers["SELECT 1"] = [lost, lost, rows(1)]
    assert txlake("sql", "-l", "wh", "--retry", "2", "SELECT 1").exit_code == 0
    lake.worker.answers["SELECT 1"] = [lost]
    assert txlake("sql", "-l", "wh", "SELECT 1").exit_code == 3
    assert len(lake.worker.ran) == 4


def test_how_many_rows_are_wanted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[int | None] = []

    def run(text: str, rows_max: int | None) -> Rows:
        wanted.append(rows_max)
        return rows(1)

    monkeypatch.setattr(lake.worker, "run", run)
    for options in ([], ["--rows", "7"], ["--rows", "0"], ["--json", "--rows", "7"]):
        txlake("sql", "-l", "wh", "SELECT 1", *options)
    assert wanted == [100, 7, None, None]


@pytest.mark.parametrize("command", ["locks", "transactions", "conflicts", "branches", "recover"])
def test_a_listing(lake: Lake, command: str) -> None:
    drawn = txlake(command, "-l", "wh")
    assert drawn.exit_code == 0
    assert "| a  |    1 |" in drawn.stdout
    assert "| b  | NULL |" in drawn.stdout
    lines = txlake(command, "-l", "wh", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": "a", "age": 1}, {"id": "b", "age": None}]
    assert [place.location for place in lake.places] == ["wh", "wh"]


def test_killing_a_transaction(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []
    monkeypatch.setattr(lakes, "kill", lambda place, one: killed.append(one))
    done = txlake("transactions", "--kill", "17", "-l", "wh", "--json")
    assert done.exit_code == 0
    assert killed == ["17"]
    assert json.loads(done.stderr) == {"note": "transaction 17 was ended: nothing of it is kept"}


def test_killing_what_is_not_open(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(place: ConnectionSettings, one: str) -> None:
        raise InvalidRequest(f"there is no open transaction {one!r}")

    monkeypatch.setattr(lakes, "kill", refuse)
    done = txlake("transactions", "--kill", "17", "-l", "wh")
    assert done.exit_code == 6
    assert done.stderr == "InvalidRequest: there is no open transaction '17'\n"


def test_a_history_needs_no_lake_for_a_place(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str, int | None]] = []

    def history(place: ConnectionSettings, table: str, limit: int | None) -> Rows:
        asked.append((place.location, table, limit))
        return Rows(columns=(Column("version", "bigint"),), rows=[(1,)], total=1)

    monkeypatch.setattr(lakes, "history", history)
    assert txlake("history", "/data/t").exit_code == 0
    assert txlake("history", "memory:x", "-n", "3").exit_code == 0
    assert txlake("history", "t", "-l", "wh", "--limit", "1").exit_code == 0
    assert asked == [(None, "/data/t", None), (None, "memory:x", 3), ("wh", "t", 1)]


def test_the_help_says_how_a_command_ends_and_loads_little() -> None:
    program = (
        "import sys; from txlake.cli.app import app\n"
        "try: app(['--help'], prog_name='txlake')\n"
        "finally: print({'pyspark', 'sqlalchemy', 'sqlglot', 'pyarrow', 'prompt_toolkit'}\n"
        "    & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Usage: txlake [OPTIONS] COMMAND" in said
    assert "3 Conflict (run it again)" in said
    assert said.endswith("set()")


def test_the_help_of_sql_says_how_it_ends() -> None:
    said = " ".join(txlake("sql", "--help").stdout.split())
    assert "6 InvalidRequest (change the statement)" in said
    assert "--retry N" in said


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_went_away_is_no_error_message(more: list[str]) -> None:
    program = (
        "import os, sys; from txlake.cli import lakes; from txlake.cli.app import app\n"
        "from txlake.session.views.results import mappings_result\n"
        "rows = [{'a': 'x' * 1000}] * 1000\n"
        "lakes.locks = lambda place: mappings_result({'a': 'string'}, rows)\n"
        f"app(['locks', '-l', 'wh', *{more}])"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def test_a_terminal_gets_a_prompt(tmp_path: Path) -> None:
    control, terminal = pty.openpty()
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb"}
    program = "from txlake.cli.app import app; app(prog_name='txlake')"
    command = [sys.executable, "-c", program, "sql", "--lake", str(tmp_path / "warehouse")]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=env, start_new_session=True
    ) as child:
        os.close(terminal)
        os.write(control, b"\\q\r")
        shown = b""
        while piece := _read(control):
            shown += piece
        os.close(control)
    assert child.returncode == 0, shown
    assert b"default> " in shown
    assert (tmp_path / "state" / "txlake" / "history").exists()


def _read(control: int) -> bytes:
    """What the terminal shows next; nothing once nobody has it open."""
    try:
        return os.read(control, 65_536)
    except OSError:
        return b""
