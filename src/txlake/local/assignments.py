"""The columns that SET clauses assign."""

from __future__ import annotations

from txlake.errors import InvalidRequest
from txlake.local.table import LocalTable
from txlake.log.snapshot import unknown_column
from txlake.sql.statements import Assignment, Default, Expression


def resolve_assignments(
    work: LocalTable, assignments: tuple[Assignment, ...], alias: str | None
) -> Assigned:
    """Return the assigned values by column, in the table's spelling, each with the rest of its
    path.

    The rest is () for a whole column. `alias` qualifies the table's columns, as its name does.
    Raises InvalidRequest for an unknown column, a path into something that isn't a struct, DEFAULT
    for a field of a struct, and a path that is assigned twice, or together with a part of it.
    """
    schema = work.snapshot.schema
    resolved: Assigned = {}
    for assignment in assignments:
        path = column_path(work, assignment.column, alias)
        column = schema.find(path[0])
        if column is None or schema.resolve(path) is None:
            raise unknown_column(".".join(assignment.column), work.snapshot)
        work.require_spelled(path)
        entries = resolved.setdefault(column.name, [])
        inner = path[1:]
        for other, _ in entries:
            shorter = min(len(other), len(inner))
            if _folded(other[:shorter]) == _folded(inner[:shorter]):
                raise InvalidRequest(
                    f"{work.snapshot.table}: column {'.'.join(path)!r} is assigned twice"
                )
        if inner and isinstance(assignment.value, Default):
            raise InvalidRequest(
                f"{work.snapshot.table}: {'.'.join(path)} is a field of a struct, which has no "
                "DEFAULT; assign a value, or DEFAULT to the whole column"
            )
        entries.append((inner, assignment.value))
    return resolved


def _folded(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def column_path(work: LocalTable, path: tuple[str, ...], alias: str | None) -> tuple[str, ...]:
    """Return the path without a leading alias or name of the table.

    A first part that also names a column is only taken off if the rest of the path is a column. The
    path needn't exist, and keeps its spelling.
    """
    fold = str if work.rules.case_sensitive else str.lower
    names = {fold(name) for name in (alias, work.name) if name is not None}
    schema = work.snapshot.schema
    qualified = len(path) > 1 and fold(path[0]) in names
    if qualified and (schema.resolve(path[1:]) or schema.find(path[0]) is None):
        return path[1:]
    return path


Assigned = dict[str, list[tuple[tuple[str, ...], Expression | Default]]]
"""The assigned values by column, each with its path inside the column."""
