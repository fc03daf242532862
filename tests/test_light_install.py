"""What runs where a few packages are installed: `txlake.Log`; the rest says what is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.pages import page

# An import of any package but these fails, as in an environment that has no other.
ONLY = """
import sys

WITH = {packages!r}.split()
OTHERS = {others!r}.split()


class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(OTHERS) - set(WITH):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, NotInstalled())
import txlake

"""
WORK = """
def of(path):
    return {"add": {"path": path, "size": 1, "partitionValues": {"p": path[2]}}}


log = txlake.Log(sys.argv[1])
columns = [("id", "long"), ("p", "string")]
schema = {
    "type": "struct",
    "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns],
}
creating = log.start_transaction()
created = {"metaData": {"schemaString": json.dumps(schema), "partitionColumns": ["p"]}}
assert creating.commit([created, of("p=1/a")], operation="CREATE TABLE").version == 0
snapshot = log.snapshot()
assert (snapshot.version, snapshot.partition_columns) == (0, ["p"])
assert snapshot.files()["path"].to_pylist() == ["p=1/a"]
assert snapshot.arrow_schema.names == ["id", "p"]
assert [row["operation"] for row in log.history()] == ["CREATE TABLE"]

mine, theirs = log.start_transaction(isolation="serializable"), log.start_transaction()
mine.read()
assert theirs.commit([of("p=1/b")]).version == 1
try:
    mine.commit([of("p=2/c")])
except txlake.errors.ConcurrentAppendException as conflict:
    assert conflict.evidence.winning_version == 1
else:
    raise AssertionError("no conflict")
again = log.start_transaction()
again.read_files(["p=1/a"])
assert again.commit([{"remove": {"path": "p=1/a"}}], operation="DELETE").version == 2
assert log.checkpoint() == 2
assert txlake.Log(sys.argv[1]).snapshot().files()["path"].to_pylist() == ["p=1/b"]
"""
_WHERE = page("docs/where-it-runs.md")


def needed() -> set[str]:
    lines = tomllib.loads(page("pyproject.toml"))["project"]["dependencies"]
    return {re.split("[<>=~!]", line)[0] for line in lines}


def light() -> set[str]:
    """What the page tells who wants the log alone to install."""
    [told] = re.findall(r"^pip install --no-deps txlake\npip install (.*)$", _WHERE, re.MULTILINE)
    return set(told.split())


def run(packages: set[str], program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    others = needed() | {"py4j", "mako", "click"}
    only = ONLY.format(packages=" ".join(packages), others=" ".join(others))
    return subprocess.run(
        [sys.executable, "-c", only + "import json\n" + program, *arguments],
        capture_output=True,
        text=True,
    )


def test_the_log_needs_few_packages(tmp_path: Path) -> None:
    assert light() == {"msgspec", "numpy", "obstore", "pyarrow", "pyroaring"}
    done = run(light(), WORK, str(tmp_path / "table"))
    assert done.returncode == 0, done.stderr


def test_the_log_loads_nothing_else(tmp_path: Path) -> None:
    loaded = (
        f"found = {needed() - light() - {'pandas'}!r} & set(sys.modules); assert not found, found"
    )
    # pyarrow imports pandas by itself where it is there.
    done = run(needed(), WORK + loaded, str(tmp_path / "table"))
    assert done.returncode == 0, done.stderr


def test_a_condition_needs_sqlglot(tmp_path: Path) -> None:
    condition = "mine = log.start_transaction()\nprint(mine.read('id > 1').num_rows)\n"
    done = run(light() | {"sqlglot"}, WORK + condition, str(tmp_path / "with"))
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    done = run(light(), WORK + condition, str(tmp_path / "without"))
    assert done.stderr.splitlines()[-1] == (
        "txlake.errors.InvalidRequest: the condition 'id > 1' needs the package sqlglot, which "
        "isn't installed: pip install txlake installs all that is missing"
    )


@pytest.mark.parametrize(
    ("what", "program", "package"),
    [
        ("txlake.connect", "txlake.connect('warehouse')", "sqlalchemy"),
        ("txlake.DeltaTable", "from txlake import DeltaTable", "pyspark"),
        ("the command txlake", "from txlake.__main__ import main; main()", "typer"),
    ],
)
def test_what_needs_more_says_so(what: str, program: str, package: str) -> None:
    done = run(light(), program)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].removeprefix("ModuleNotFoundError: ") == (
        f"{what} needs the package {package}, which isn't installed: pip install txlake installs "
        "all that is missing"
    )
