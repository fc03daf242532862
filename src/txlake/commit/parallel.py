"""Requests side by side, or after the answer, where stores are slow.

A request over a network takes as long as hundreds of requests to a disk, and a commit makes a few
for each table. Requests to one table keep their order where one depends on the other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Protocol, TypeVar

from txlake.ports import Store

Item = TypeVar("Item")
Value = TypeVar("Value")

_TABLES_MAX = 32
_REQUESTS_MAX = 64
_WORKERS_MAX = 16

_logger = logging.getLogger(__name__)


def parallel_map(
    work: Callable[[Item], Value], items: Sequence[Item], *, store: Callable[[Item], Store]
) -> list[Value]:
    """Return the results of `work` on each item, in order, in threads unless all stores are local.

    `store` returns the store that the work on an item requests from. Raises the error of the first
    item that failed; the work on other items may have been done. Where Python can start no thread
    any more, the work on an item may be done twice.
    """
    if len(items) < 2 or all(store(one).excludes_late_writes for one in items):
        return [work(one) for one in items]
    with ThreadPoolExecutor(min(_TABLES_MAX, len(items))) as pool:
        try:
            done = pool.map(work, items)
        except RuntimeError:  # Python ends
            done = map(work, items)
        return list(done)


class Located(Protocol):
    """Files at a URL, such as a store."""

    @property
    def url(self) -> str: ...


def is_far(store: Located) -> bool:
    """Return whether requests to a store travel over a network."""
    return not store.url.startswith(("file:", "memory:"))


def begin(request: Callable[[], Value], *, store: Located) -> Callable[[], Value]:
    """Begin a request to a store over a network, and return the function that waits for its result.

    For other stores that function makes the request. The request itself waits for no other one that
    was begun.
    """
    if not is_far(store):
        return request
    try:
        return _requests(os.getpid()).submit(request).result
    except RuntimeError:  # Python ends
        return request


def begin_work(work: Callable[[], Value], *, store: Located) -> Callable[[], Value]:
    """Begin work that may itself `begin` requests, as `begin` does a request."""
    if not is_far(store):
        return work
    try:
        return _workers(os.getpid()).submit(work).result
    except RuntimeError:  # Python ends
        return work


class FollowingWork:
    """Work on one table that follows the answer to a statement, where its store is far.

    The works are done in their order, in a thread; Python waits at its end for those that were
    begun. For other stores a work is done at once.
    """

    def __init__(self) -> None:
        self._last: Callable[[float | None], None] | None = None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the works that were added before are done. Raises TimeoutError."""
        if self._last is not None:
            self._last(timeout_s)


def follow(works: Sequence[FollowingWork], work: Callable[[], None], *, store: Store) -> None:
    """Do a work that concerns several tables after all that these tables' works hold so far.

    Errors of the work are logged.
    """
    before = [one._last for one in works if one._last is not None]

    def run() -> None:
        for wait in before:
            wait(None)
        before.clear()
        try:
            work()
        except Exception:
            _logger.exception("work that follows a commit failed")

    if not is_far(store):
        run()
        return
    try:
        wait = _workers(os.getpid()).submit(run).result
    except RuntimeError:  # Python ends
        run()
        return
    for one in works:
        one._last = wait


@lru_cache(maxsize=1)
def _requests(_process: int) -> ThreadPoolExecutor:
    """Return this process's threads for requests; a fork has none of its parent's."""
    return ThreadPoolExecutor(_REQUESTS_MAX, thread_name_prefix="txlake-requests")


@lru_cache(maxsize=1)
def _workers(_process: int) -> ThreadPoolExecutor:
    """Return this process's threads for works that wait for requests, and for each other in the
    order of their beginnings.
    """
    return ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="txlake-following")
