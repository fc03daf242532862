"""How long a test may take: hooks for a conftest, beside pytest-timeout's own.

pytest-timeout interrupts the main thread after the setting `timeout`, or the mark of that name: the
test fails with the stacks of all threads, and the next one runs. Where no signal gets through (in a
library's code, or in a fixture's end after the interruption) it is given GRACE_S more; then the
process ends, with the stacks too. pytest-xdist starts another in its place.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

GRACE_S = 300.0

_is_limited = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, bool, bool]:
    """A test begins: its limit is known."""
    item.stash[_is_limited] = True
    _arm(item, settings.timeout + GRACE_S)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Generator[None, bool, bool]:
    """It has ended, or failed."""
    faulthandler.cancel_dump_traceback_later()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_exception_interact(node: pytest.Item) -> Generator[None]:
    """It failed, upon which the timer is cancelled; its fixtures are still to end."""
    yield
    if node.stash.get(_is_limited, False):
        _arm(node, GRACE_S)


def _arm(item: pytest.Item, seconds: float) -> None:
    to = item.config.stash[fault_handler_stderr_fd_key]  # standard error is captured
    faulthandler.dump_traceback_later(seconds, exit=True, file=to)
