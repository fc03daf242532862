"""The README and its reference are true: the program runs, tables say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txlake
from tests.lake.test_who_loses import CASES, N, S, W
from tests.pages import ROOT, blocks, codes, page, table
from txlake.errors import SerializableIsolationViolation
from txlake.protocol.features import READABLE, WRITABLE

README = page("README.md")
MATRIX = table(page("docs/isolation.md"), "yours, and the one that commits first")
OUTCOMES = {cells[0]: cells[1:] for cells in MATRIX}
SELECT = "select and insert elsewhere, insert of selected rows"
COMPACTION = "compaction, blind insert"


def test_the_program_runs_as_written(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    programs = blocks(README, "python")
    lines = [sum(bool(line.strip()) for line in program.splitlines()) for program in programs]
    assert lines[0] <= 10
    assert lines[1:] == [5]
    program = "".join(programs)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # who tries it, tries it again
        exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    promised = re.findall(r"print\(.*\)  # (.*)$", program, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == [*promised, *promised]


def test_who_loses_to_whom_is_what_the_tests_try() -> None:
    assert set(OUTCOMES) == {*CASES, SELECT, COMPACTION}
    for name, (_, _, outcomes) in CASES.items():
        for level, cell in zip((N, W, S), OUTCOMES[name], strict=True):
            error = outcomes[level]
            if cell == "conflicts":
                assert error is not None, (name, level)
            else:
                expected = "commits" if error is None else f"`{error.__name__}`"
                assert cell == expected, (name, level)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> txlake.Lake:
    """A lake with a table `t` of two files."""
    opened = txlake.connect(str(tmp_path / "warehouse"), spark=spark)
    opened.sql("CREATE TABLE t (id BIGINT, p INT); INSERT INTO t VALUES (1, 1)")
    opened.sql("INSERT INTO t VALUES (2, 2)")
    return opened


@pytest.mark.parametrize(("level", "cell"), list(zip((N, W, S), OUTCOMES[SELECT], strict=True)))
def test_a_select_is_as_said(lake: txlake.Lake, level: str, cell: str) -> None:
    tx = lake.begin(isolation=level)
    tx.sql("SELECT * FROM t WHERE p = 1").collect()
    tx.sql("INSERT INTO t VALUES (3, 3)")
    lake.sql("INSERT INTO t VALUES (4, 1)")
    if cell == "commits":
        tx.commit()
        return
    assert cell == f"`{SerializableIsolationViolation.__name__}`"
    with pytest.raises(SerializableIsolationViolation):
        tx.commit()


@pytest.mark.parametrize(("level", "cell"), list(zip((N, W, S), OUTCOMES[COMPACTION], strict=True)))
def test_a_compaction_is_as_said(lake: txlake.Lake, level: str, cell: str) -> None:
    assert cell == "commits"
    tx = lake.begin(isolation=level)
    tx.sql("OPTIMIZE t")
    lake.sql("INSERT INTO t VALUES (4, 1)")
    tx.commit()
    place = lake.table("t").detail().collect()[0].location
    assert len(txlake.Log(place).snapshot().files()) == 2


def test_features_are_read_and_written_as_said() -> None:
    said: set[str] = set()
    for cell, read, written in table(page("docs/compatibility.md"), "table feature"):
        assert read == "yes"
        for name in codes(cell):
            said.add(name)
            assert (name in WRITABLE) == (written == "yes"), name
    # Names of previews and drafts stand for the features that they became.
    known, listed = (
        {re.sub("-(preview|dev)$", "", name) for name in names}
        for names in (READABLE | WRITABLE, said)
    )
    assert known - {"catalogOwned"} <= listed


def commands() -> list[str]:
    """The commands of the README's first screen, without their comments."""
    install = README.partition("\n## Install\n")[2].partition("\n## ")[0]
    return [
        line.partition("#")[0].strip() for line in re.findall(r"^    (.*)", install, re.MULTILINE)
    ]


def test_ci_begins_with_the_commands_of_the_first_screen_as_a_newcomer_types_them() -> None:
    ci = page(".ci/run")
    assert len(commands()) >= 3
    assert re.findall(r'^typed "(?!cd )(.*)"$', ci, re.MULTILINE) == commands()
    # Nothing of the clone, of the home folder or of the environment is there before.
    before = ci.partition(f'typed "{commands()[0]}"')[0]
    assert not re.search(r"\bmake\b|tools/|\.venv|\.cache", before.partition("set -euo")[2])
    [typed] = re.findall(r"^typed\(\) \{ (.*); \}$", before, re.MULTILINE)
    assert typed == 'env -i PATH="$scratch/venv/bin:$PATH" HOME="$scratch/home" sh -c "$1"'
    others = ci.partition(f'typed "{commands()[-1]}"')[2]
    assert "\nmake check\n" in others
    assert "\nmake test-all " in others


def test_make_test_takes_what_every_page_says() -> None:
    pages = {name: page(name) for name in ("README.md", "CONTRIBUTING.md", "Makefile")}
    for name, text in pages.items():
        assert re.search(r"make test`? .*25 minutes|^test:.*25 minutes", text, re.MULTILINE), name


def anchor(line: str) -> str:
    """What a link calls a heading; nothing for other lines."""
    if not line.startswith("#"):
        return ""
    words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
    return words.replace(" ", "-")


def test_links_and_commands_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", README):
        place, _, heading = link.partition("#")
        assert (ROOT / place).is_file(), link
        assert heading in {anchor(line) for line in page(place).splitlines()}, link
    targets = re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE)
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert target in targets
