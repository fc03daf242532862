"""A test that hangs ends: alone where a signal reaches it, and with its process elsewhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
from tests import limits
from tests.limits import (
    pytest_exception_interact, pytest_timeout_cancel_timer, pytest_timeout_set_timer
)
limits.GRACE_S = 1.0
"""
HANGS = """
import pytest, signal, threading

never = threading.Event()

@pytest.fixture
def never_ends():
    yield
    never.wait()

@pytest.mark.timeout(1)
def test_hangs():
    never.wait()

@pytest.mark.timeout(1)
def test_hangs_at_its_end(never_ends):
    pass

def test_passes():
    pass
"""
UNREACHED = """
@pytest.mark.timeout(1)
def test_is_not_reached():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    never.wait()
"""
ENDS_TWICE = """
@pytest.mark.timeout(1)
def test_hangs_twice(never_ends):
    assert False
"""
_WAITS = {"join", "wait", "communicate", "result", "exception"}


def ran(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-q"]
    options = ["-p", "no:xdist", f"--rootdir={ROOT}", str(folder)]
    return subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_test_that_hangs_fails_alone_with_all_stacks(tmp_path: Path) -> None:
    done = ran(tmp_path, HANGS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 passed, 1 failed, 1 error" in done.stdout.replace(
        "1 failed, 2 passed", "2 passed, 1 failed"
    )
    assert "Timeout (>1.0s) from pytest-timeout" in done.stdout
    assert "in test_hangs" in done.stdout or "never.wait()" in done.stdout


@pytest.mark.parametrize("more", [UNREACHED, ENDS_TWICE], ids=["no signal", "its end after it"])
def test_what_no_interruption_ends_ends_the_process(tmp_path: Path, more: str) -> None:
    done = ran(tmp_path, HANGS + more)
    assert done.returncode == 1
    assert "Timeout (0:00:0" in done.stderr
    assert "test_it.py" in done.stderr


def test_nothing_in_the_tests_waits_without_a_limit() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if "simulation" not in file.parts  # whose time is its own
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _WAITS
        and not node.args
        and not node.keywords
    ]
    assert found == []


def test_hypothesis_measures_no_time_and_draws_the_same_everywhere() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert settings.default.derandomize
