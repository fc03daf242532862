"""What is done on each table of a transaction: on all of them at once, where that saves waiting.

A request over a network takes as long as hundreds to a disk, and a commit makes a few for each
table. Those to one table keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from txlake.ports import Store

Item = TypeVar("Item")
Value = TypeVar("Value")

_TABLES_MAX = 16


def at_once(
    work: Callable[[Item], Value], items: Sequence[Item], *, store: Callable[[Item], Store]
) -> list[Value]:
    """What the work gives for each item, in their order; `store` is the one that it asks.

    Raises what it raises for the first item for which it does; others may have been done. Where no
    thread can be had, work may be done twice.
    """
    if len(items) < 2 or all(store(one).is_prompt for one in items):
        return [work(one) for one in items]
    with ThreadPoolExecutor(min(_TABLES_MAX, len(items))) as pool:
        try:
            done = pool.map(work, items)
        except RuntimeError:  # Python ends
            done = map(work, items)
        return list(done)
