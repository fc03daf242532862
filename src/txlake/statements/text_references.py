"""What the texts in a statement read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from txlake.statements.control import Atomic
from txlake.statements.expressions import Reference, SqlText


def references_of(part: object) -> Iterator[Reference]:
    """What the texts in a statement, or in a part of one, read; those of BEGIN ATOMIC left out."""
    if isinstance(part, SqlText):
        yield from part.references
    elif isinstance(part, Atomic):
        return
    elif isinstance(part, tuple):
        for one in part:
            yield from references_of(one)
    elif is_dataclass(part):
        for item in fields(part):
            yield from references_of(getattr(part, item.name))
