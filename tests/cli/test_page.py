"""docs/command-line.md is true: its examples run as written; every command and option is there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.pages import blocks, codes, page, table
from txlake.cli.app import app
from txlake.cli.exit_codes import EXIT_CODES, EXIT_INTERRUPTED, EXIT_OTHER, EXIT_PIPE, EXIT_USAGE
from txlake.cli.prompt import HELP, prompt_text
from txlake.cli.worker import SessionState

TEXT = page("docs/command-line.md")


def examples() -> Iterator[tuple[str, str]]:
    """Each command of the page, and what it shows."""
    for block in blocks(TEXT, "console"):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = example.partition("\n")
            yield command, shown


def settled(shown: str) -> str:
    """What is the same at every run."""
    return re.sub(r'"elapsed_ms": \d+', '"elapsed_ms": 0', shown)


def test_the_examples_run_as_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in blocks(TEXT, "sql"):
        (tmp_path / text.splitlines()[0].removeprefix("-- ")).write_text(text)
    runner = CliRunner(env={"TXLAKE_LAKE": str(tmp_path / "warehouse")})
    ran = 0
    for command, shown in examples():
        program, *arguments = shlex.split(command)
        assert program == "txlake"
        done = runner.invoke(app, arguments)
        end = f"[exit {done.exit_code}]\n" if done.exit_code else ""
        said = done.stdout + done.stderr + end
        if shown:
            assert settled(said) == settled(shown), command
        assert done.exit_code == 0 or "[exit" in shown, said
        ran += 1
    assert ran == 12
    for block in blocks(TEXT, "console"):
        for line in block.splitlines():
            if line.startswith("{"):
                json.loads(line)


def test_it_has_every_command_and_option() -> None:
    group = typer.main.get_command(app)
    commands = getattr(group, "commands")  # noqa: B009
    named = [codes(cells[0])[0].split()[1] for cells in table(TEXT, "command")]
    assert named == list(commands)
    for name, command in commands.items():
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and option != "--help":
                    assert f"`{option}" in TEXT, (name, option)


def test_the_exit_codes_are_those_of_the_program() -> None:
    said = {int(cells[0]): cells[1] for cells in table(TEXT, "exit code")}
    kinds = {code: f"`{kind.__name__}`" for kind, code in EXIT_CODES.items()}
    assert {code: said[code] for code in kinds} == kinds
    assert set(said) == {0, EXIT_OTHER, EXIT_USAGE, *kinds, EXIT_INTERRUPTED, EXIT_PIPE}


def test_the_prompts_are_those_of_the_program() -> None:
    standings = (
        SessionState(database="sales", isolation="snapshot"),
        SessionState(database="sales", isolation="serializable", transaction="1"),
        SessionState(database="sales", isolation="snapshot", transaction="1", read_only=True),
        SessionState(database="sales", isolation="serializable", transaction="1", failed=True),
        SessionState(database="sales", isolation="snapshot", branch="nightly"),
    )
    made = list(map(prompt_text, standings))
    assert [codes(cells[0])[0] for cells in table(TEXT, "prompt")] == made
    for command in re.findall(r"\\\S+", HELP):
        assert f"`{command}" in TEXT, command
