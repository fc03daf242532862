"""Running tests again and again in one process, with and without a mutant.

Owns the pytest session for it, what counts as killed, and the limit on tests that hang with a
mutant. Tests that need Spark, that Hypothesis repeats or that are marked broad are never killers.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import CodeType, FrameType

import pytest
from _pytest.tmpdir import tmppath_result_key

from tests.mutation.guards import Mutant
from tests.mutation.switching import switched_off
from txlake.catalog import shielding

LIMIT_S = 10.0
"""How long a test may run with a mutant at most; one that is still not done counts as failed."""

_UNMUTATED_LIMIT_S = 600.0

_ARGUMENTS = (
    "-q",
    "--no-header",
    "-o",
    "addopts=--import-mode=importlib --hypothesis-profile=ci",
    "-o",
    "cache_dir=.cache/pytest-mutation",
    "-o",
    "tmp_path_retention_policy=none",
    "-W",
    "ignore",
)

# Parts of the names of tests of many histories, and of tests that need a server.
_EXCLUDED = ("histories", "simulation", "processes", "[server", "postgresql")
_CALLS_TRACED = 500


class Hung(BaseException):
    """A test exceeded its time limit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run of a test.

    Attributes:
        error: the type of the exception; None for a passed test.
        seconds: the processor time of the run.
    """

    error: str | None
    seconds: float

    @property
    def passed(self) -> bool:
        return self.error is None


Work = Callable[[Sequence[pytest.Item]], None]


class _Session:
    """Hands the collected tests to the work instead of running them."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.has_worked = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed("tests that can't be collected")
        for plugin in session.config.pluginmanager.get_plugins():
            # The check of a test's tables by other engines needs Spark, and must not kill a mutant.
            if hasattr(plugin, "_interop") and hasattr(plugin, "delta_tables"):
                plugin.delta_tables = lambda folder: []
        self._work([item for item in session.items if _may_kill(item)])
        self.has_worked = True
        return True


def _may_kill(item: pytest.Item) -> bool:
    if (
        any(kind in item.nodeid for kind in _EXCLUDED)
        or item.get_closest_marker("broad") is not None
    ):
        return False
    names = getattr(item, "fixturenames", ())
    is_repeated = hasattr(getattr(item, "function", None), "hypothesis")
    return not is_repeated and not {"spark", "golden", "postgres"} & set(names)


def call_with_tests(names: Sequence[str], work: Work) -> None:
    """Collect these tests and call the work with them. Raises RuntimeError if that fails."""
    plugin = _Session(work)
    # Shielded work in another thread couldn't be interrupted or traced.
    shielding.is_interruptible = lambda: False
    with TemporaryDirectory(prefix="txlake-mutation-") as folder:
        code = pytest.main([*_ARGUMENTS, f"--basetemp={folder}/tests", *names], plugins=[plugin])
    if not plugin.has_worked:
        raise RuntimeError(f"pytest ended with {code!r} before the tests were run")


def run(item: pytest.Item, mutant: Mutant | None = None, limit_s: float = LIMIT_S) -> Outcome:
    """Run a test once, fixtures included, with or without a mutant."""
    before = time.process_time()
    if mutant is None:
        error = _error(item, _UNMUTATED_LIMIT_S)
    else:
        with switched_off(mutant):
            error = _error(item, limit_s)
    return Outcome(error, time.process_time() - before)


def _error(item: pytest.Item, limit_s: float) -> str | None:
    """Run a test without a report; return the type of its exception, or None."""
    if not getattr(item, "_request", True):
        item._initrequest()  # type: ignore[attr-defined]
    item.stash[tmppath_result_key] = {}
    error: str | None = None
    try:
        with _limited(limit_s):
            item.ihook.pytest_runtest_setup(item=item)
            item.ihook.pytest_runtest_call(item=item)
    except BaseException as raised:
        error = type(raised).__name__
    try:
        with _limited(limit_s):
            item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
    except BaseException as raised:
        error = error or type(raised).__name__
    item._request = False  # type: ignore[attr-defined]
    item.funcargs = None  # type: ignore[attr-defined]
    return error


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def raise_hung(_: int, __: FrameType | None) -> None:
        raise Hung

    previous = signal.signal(signal.SIGALRM, raise_hung)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def traced(item: pytest.Item, files: dict[str, str]) -> tuple[Outcome, dict[str, set[int]]]:
    """Run a test; return its outcome and the lines that it ran of `files`, by the files' names
    there.
    """
    lines: dict[str, set[int]] = {name: set() for name in files.values()}
    unrun_lines: dict[CodeType, set[int]] = {}  # lines that haven't run, of code that did
    calls: Counter[CodeType] = Counter()

    def on_line(frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            unrun_lines[frame.f_code].discard(frame.f_lineno)
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> object:
        code = frame.f_code
        remaining = unrun_lines.get(code)
        if remaining is None:
            if code.co_filename not in files:
                return None
            remaining = unrun_lines[code] = {
                line for *_, line in code.co_lines() if line is not None
            }
        calls[code] += 1
        return on_line if remaining and calls[code] <= _CALLS_TRACED else None

    threading.settrace(on_call)  # type: ignore[arg-type]
    sys.settrace(on_call)  # type: ignore[arg-type]
    try:
        outcome = run(item)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    for code, remaining in unrun_lines.items():
        ran = {line for *_, line in code.co_lines() if line is not None} - remaining
        lines[files[code.co_filename]] |= ran
    return outcome, lines
