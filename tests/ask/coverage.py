"""Coverage: the types, writers, operators and features that each way has met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.ask.kinds import EVERY
from tests.ask.tables import CANNOT, FEATURES, WRITERS
from tests.ask.ways import BATCHES, WAYS

Reached = Counter[tuple[str, str, str]]
ALL_WAYS = (*BATCHES, *WAYS)
_ROWS: Mapping[str, Sequence[str]] = {
    "type": tuple(EVERY),
    "writer": WRITERS,
    "feature": FEATURES,
}


def lines(reached: Reached) -> Iterator[str]:
    """Yield a table for each topic, with the fewest and the most questions of a way in each row."""
    for topic, names in _ROWS.items():
        yield f"{topic} x way (questions, the fewest and the most of a way):"
        for name in names:
            counts = [reached[topic, name, way] for way in ALL_WAYS]
            yield f"  {name}: {sum(counts)}, {min(counts)} to {max(counts)}"
    yield "type x writer (questions):"
    for name in EVERY:
        found = [f"{writer} {reached['type by writer', name, writer]}" for writer in WRITERS]
        yield f"  {name}: {', '.join(found)}"
    operators = sorted({name for topic, name, _ in reached if topic == "operator"})
    ways = [
        (sum(1 for way in ALL_WAYS if reached["operator", name, way]), name) for name in operators
    ]
    yield f"operators: {len(operators)}, each by so many of {len(ALL_WAYS)} ways:"
    yield "  " + ", ".join(f"{name} {count}" for count, name in sorted(ways))


def empty(reached: Reached) -> list[str]:
    """Return the cells that no question reached, though one could."""
    missing = [
        f"{topic} {name}, way {way}"
        for topic, names in _ROWS.items()
        for name in names
        for way in ALL_WAYS
        if not reached[topic, name, way]
    ]
    missing += [
        f"type {name}, writer {writer}"
        for name in EVERY
        for writer in WRITERS
        if not reached["type by writer", name, writer] and not _cannot(name, writer)
    ]
    return missing


def _cannot(kind: str, writer: str) -> bool:
    return kind.startswith(CANNOT.get(writer, ()))
