"""Draws a program step by step: what comes next depends on what the table is like by then."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.differential import definitions, rows, schemas
from tests.differential.logs import FEED
from tests.differential.rows import Drawn
from tests.differential.schemas import Shape
from tests.differential.steps import Step

STEPS_MAX = 10
_STEPS_MIN = 5
_WITH_FEED = 0.3
_KINDS: dict[str, int] = {
    "insert": 22,
    "update": 12,
    "delete": 9,
    "merge": 16,
    "frame": 12,
    "alter": 14,
    "optimize": 5,
    "restore": 3,
    "clone": 3,
    "second": 3,
    "select": 4,
    "replace": 2,
}


class Program:
    """A seed's program, of which the next step is drawn when the one before has run."""

    def __init__(self, seed: int, steps_max: int = STEPS_MAX) -> None:
        self._luck = Random(seed)
        self.length = min(self._luck.randint(_STEPS_MIN, STEPS_MAX), steps_max)
        self._has_feed = Random(f"feed {seed}").random() < _WITH_FEED

    def first(self) -> Step:
        """The step that makes the table."""
        text = schemas.create(self._luck)
        if self._has_feed:
            text = f"{text[:-1]}, '{FEED}' = 'true')"
        return Step(0, "create", text)

    def then(self, number: int, shape: Shape) -> Step:
        """The step with this number, for a table that is like that."""
        luck = self._luck
        if number == 1:
            kind = "insert"
        else:
            (kind,) = luck.choices(list(_KINDS), list(_KINDS.values()))
        text, call, settings = _DRAW[kind](luck, shape, number)
        return Step(number, kind, text, call, settings)


_DRAW: dict[str, Callable[[Random, Shape, int], Drawn]] = {
    "insert": lambda luck, shape, _: rows.insert(luck, shape),
    "update": lambda luck, shape, _: rows.update(luck, shape),
    "delete": lambda luck, shape, _: rows.delete(luck, shape),
    "merge": lambda luck, shape, _: rows.merge(luck, shape),
    "frame": lambda luck, shape, _: rows.frame(luck, shape),
    "alter": definitions.alter,
    "optimize": lambda luck, shape, _: definitions.optimize(luck, shape),
    "restore": lambda luck, _, number: definitions.restore(luck, number),
    "clone": lambda luck, _, number: definitions.clone(luck, number),
    "second": lambda luck, shape, _: definitions.second(luck, shape),
    "select": definitions.select,
    "replace": lambda luck, shape, _: definitions.replace(luck, shape),
}
