"""The table references in a statement's SQL texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from txlake.sql.statements.control import Atomic
from txlake.sql.statements.expressions import Reference, SqlText


def references_of(part: object) -> Iterator[Reference]:
    """Yield the references of the texts in a statement or a part of it, in order.

    Nothing for BEGIN ATOMIC, whose steps are statements of their own.
    """
    if isinstance(part, SqlText):
        yield from part.references
    elif isinstance(part, Atomic):
        return
    elif isinstance(part, tuple):
        for element in part:
            yield from references_of(element)
    elif is_dataclass(part):
        for item in fields(part):
            yield from references_of(getattr(part, item.name))
