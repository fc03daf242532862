"""Work on the tables of a transaction in parallel, where their stores are slow.

A request over a network takes as long as hundreds of requests to a disk, and a commit makes a few
for each table. Requests to one table keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from txlake.ports import Store

Item = TypeVar("Item")
Value = TypeVar("Value")

_TABLES_MAX = 16


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
