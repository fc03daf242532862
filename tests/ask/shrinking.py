"""Reduction of a difference: fewer rows and steps, and a simpler condition, that still differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.ask.conditions import Condition
from tests.ask.machine import Difference
from tests.ask.tables import ID, Plan, with_rows

_TRIES_MAX = 40

Ask = Callable[[Plan, Condition], Difference | None]
"""Asks one question in every way; the difference where the answers still differ."""


def shrink(difference: Difference, ask: Ask, tries_max: int = _TRIES_MAX) -> Difference:
    """Return the smallest difference of the same ways found in `tries_max` tries."""
    assert difference.condition is not None
    ways = {way for way, _ in difference.answers}
    found, tries = difference, 0
    is_smaller = True
    while is_smaller and tries < tries_max:
        is_smaller = False
        for plan, condition in _smaller_cases(found):
            if tries >= tries_max:
                break
            tries += 1
            smaller = ask(plan, condition)
            if smaller is not None and ways & {way for way, _ in smaller.answers}:
                found, is_smaller = smaller, True
                break
    return found


def _smaller_cases(found: Difference) -> Iterator[tuple[Plan, Condition]]:
    plan, condition = found.plan, found.condition
    assert condition is not None
    for simplifications in condition.simplifications():
        yield plan, simplifications
    for step in range(len(plan.steps)):
        yield replace(plan, steps=plan.steps[:step] + plan.steps[step + 1 :]), condition
    ids = [row[ID] for _, rows in plan.chunks for row in rows]
    half = len(ids) // 2
    if half:
        yield with_rows(plan, set(ids[:half])), condition
        yield with_rows(plan, set(ids[half:])), condition
    if 1 < len(ids) <= 12:
        for one in ids:
            yield with_rows(plan, set(ids) - {one}), condition
    named = condition.text()
    used = tuple(
        one
        for one in plan.columns
        if one.quoted.lower() in named.lower() or one.name in plan.partition_by
    )
    if 0 < len(used) < len(plan.columns):
        yield replace(plan, columns=used), condition
    if plan.partition_by:
        yield replace(plan, partition_by=()), condition
    if plan.properties:
        needed = {
            key: value for key, value in plan.properties.items() if key.endswith("TypeWidening")
        }
        if needed != dict(plan.properties):
            yield replace(plan, properties=needed), condition
