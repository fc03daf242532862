"""Random programs, step by step: each step is generated for the table's present state."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.differential import definitions, rows, schemas
from tests.differential.logs import FEED
from tests.differential.rows import RandomStatement
from tests.differential.schemas import TableShape
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
    """A seed's program, whose next step is generated after the previous one has run."""

    def __init__(self, seed: int, steps_max: int = STEPS_MAX) -> None:
        self._rng = Random(seed)
        self.length = min(self._rng.randint(_STEPS_MIN, STEPS_MAX), steps_max)
        self._has_feed = Random(f"feed {seed}").random() < _WITH_FEED

    def first_step(self) -> Step:
        """Return the step that creates the table."""
        text = schemas.create(self._rng)
        if self._has_feed:
            text = f"{text[:-1]}, '{FEED}' = 'true')"
        return Step(0, "create", text)

    def next_step(self, number: int, shape: TableShape) -> Step:
        """Return the step with this number for a table of this shape."""
        rng = self._rng
        if number == 1:
            kind = "insert"
        else:
            (kind,) = rng.choices(list(_KINDS), list(_KINDS.values()))
        text, call, settings = _DRAW[kind](rng, shape, number)
        return Step(number, kind, text, call, settings)


_DRAW: dict[str, Callable[[Random, TableShape, int], RandomStatement]] = {
    "insert": lambda rng, shape, _: rows.insert(rng, shape),
    "update": lambda rng, shape, _: rows.update(rng, shape),
    "delete": lambda rng, shape, _: rows.delete(rng, shape),
    "merge": lambda rng, shape, _: rows.merge(rng, shape),
    "frame": lambda rng, shape, _: rows.frame(rng, shape),
    "alter": definitions.alter,
    "optimize": lambda rng, shape, _: definitions.optimize(rng, shape),
    "restore": lambda rng, _, number: definitions.restore(rng, number),
    "clone": lambda rng, _, number: definitions.clone(rng, number),
    "second": lambda rng, shape, _: definitions.second(rng, shape),
    "select": definitions.select,
    "replace": lambda rng, shape, _: definitions.replace(rng, shape),
}
