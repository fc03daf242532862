"""The frame itself: what importing costs, what the layers forbid, what the lock may hold."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.layers import PICTURE, picture

ROOT = Path(__file__).resolve().parent.parent


def test_importing_txlake_imports_no_spark_and_no_heavy_library() -> None:
    code = (
        "import sys, txlake; "
        "print([m for m in ('pyspark', 'py4j', 'pandas', 'grpc', 'deltalake') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_lock_has_exact_versions_alone_and_all_that_is_wanted() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [
        line
        for line in pins
        if not re.fullmatch(
            r'[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+(; python_version < "[0-9.]+")?', line
        )
    ] == []

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = config["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
        *config["dependency-groups"]["dev"],
    ]
    names = {_normal(line.split("==")[0]) for line in pins}
    assert {_normal(re.split(r"[\[<>=~!; ]", line)[0]) for line in wanted} - names == set()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    "script",
    ["tools/setup.sh", "tools/delta_jars.sh", "tools/s3a_jars.sh", "tools/servers.sh", ".ci/run"],
)
def test_scripts_can_be_run(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111, f"{script} isn't executable"
    subprocess.run(["sh" if script.endswith(".sh") else "bash", "-n", str(path)], check=True)


@pytest.mark.parametrize(
    ("module", "text", "named"),
    [
        ("protocol/extra.py", "import os", "txlake.protocol.extra -> os"),
        ("conflict/extra.py", "from time import sleep", "txlake.conflict.extra -> time"),
        ("log/extra.py", "import pyspark.sql", "txlake.log.extra -> pyspark"),
        ("protocol/extra.py", "import txlake.log", "txlake.protocol.extra -> txlake.log"),
        ("storage/extra.py", "import txlake.catalog", "txlake.storage.extra -> txlake.catalog"),
        ("gadgets.py", "", "- txlake.gadgets"),
    ],
)
def test_layers_are_guarded(tmp_path: Path, module: str, text: str, named: str) -> None:
    """Each import that ARCHITECTURE.md forbids turns `make check` red, and so does a new layer."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "src" / "txlake" / module).write_text(f'"""A trespasser."""\n\n{text}\n')

    linter = (
        "import sys; sys.path.insert(0, 'src'); "
        "from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", linter], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert named in ran.stdout


_REFERENCE = re.compile(
    r"(?<![\w/.`-])((?:docs|tests|tools|src|bench|examples)/[\w./-]+\.(?:md|py|toml|svg|sh)"
    r"|[A-Z]{3,}\.md)\b"
)
# Documents of others; names that the tests of the test runner make up.
_ELSEWHERE = {"PROTOCOL.md", "TRANSACTIONS.md", "tests/test_a.py"}


def test_every_reference_to_a_file_leads_somewhere() -> None:
    lost = {
        (str(path.relative_to(ROOT)), found)
        for folder in ("src", "tests", "tools", "bench", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for found in _REFERENCE.findall(path.read_text(encoding="utf-8"))
        if found not in _ELSEWHERE and not (ROOT / found).exists()
    }
    assert not lost, "cite a page in docs/, PROTOCOL.md, a paper or an issue"


def test_what_a_test_replaces_exists() -> None:
    """`setattr(owner, "name", ...)` in a test that rarely runs names an attribute of txlake."""
    replaced = [
        (f"{path.relative_to(ROOT)}:{line}", owner, name)
        for path in (ROOT / "tests").rglob("*.py")
        for line, owner, name in _replaced(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(replaced) > 100
    assert not [(where, name) for where, owner, name in replaced if not hasattr(owner, name)]


def _replaced(module: ast.Module) -> Iterator[tuple[int, object, str]]:
    """Yield line, owner and attribute where the owner is imported from txlake."""
    imported = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("txlake")
        for alias in node.names
    }
    for node in ast.walk(module):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr"),
                args=[ast.Name(id=owner), ast.Constant(value=str(name)), *_],
            ) if owner in imported:
                yield node.lineno, _imported(*imported[owner]), name


def _imported(module: str, name: str) -> object:
    """Return a module's member; its submodule of that name if it has no such member."""
    parent = importlib.import_module(module)
    if not hasattr(parent, name):
        return importlib.import_module(f"{module}.{name}")
    return getattr(parent, name)


def test_the_picture_of_the_layers_is_as_drawn() -> None:
    assert picture() == PICTURE.read_text(encoding="utf-8"), "run: python tools/layers.py"
