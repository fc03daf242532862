"""Column qualifiers: resolves `t`, `db.t` or `lake.db.t` before a column to a table of the query.

Tables of the same name in several databases get different aliases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from txlake.sql.statements import Reference, TableName


@dataclass(frozen=True, slots=True)
class QualifiedColumn:
    """A qualified column.

    Attributes:
        parts: (name in lower case, start, end) of each part before the column's own name.
        selects: ids of the SELECTs around the column, innermost first.
    """

    parts: tuple[tuple[str, int, int], ...]
    selects: tuple[int, ...]


def qualified_columns(tree: exp.Expr, offset: int) -> Iterator[QualifiedColumn]:
    """Yield the qualified columns. `offset`: from sqlglot's positions to the caller's."""
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if len(parts) > 1 and all(part.meta.get("start") is not None for part in parts[:-1]):
            yield QualifiedColumn(
                tuple(
                    (part.name.lower(), part.meta["start"] + offset, part.meta["end"] + 1 + offset)
                    for part in parts[:-1]
                ),
                tuple(selects_around(column)),
            )


def selects_around(node: exp.Expr) -> Iterator[int]:
    """Yield the ids of the SELECTs around a node, innermost first."""
    while (select := node.parent_select) is not None:
        yield id(select)
        node = select


def qualifier_spans(
    columns: Sequence[QualifiedColumn], name: Sequence[str], claimed: set[int]
) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the qualifiers that are a table's full name, unless claimed before.

    Their starts are added to `claimed`. Nothing for a name of one part.
    """
    full_name = [part.lower() for part in name]
    if len(full_name) < 2:
        return
    for column in columns:
        start = column.parts[0][1]
        if (
            start not in claimed
            and [part[0] for part in column.parts[: len(full_name)]] == full_name
        ):
            claimed.add(start)
            yield start, column.parts[len(full_name) - 1][2]


def disambiguated(
    references: Sequence[Reference],
    selects: Mapping[int, int | None],
    columns: Sequence[QualifiedColumn],
    claimed: set[int],
    shift: int,
) -> list[Reference]:
    """Return the references with different aliases for same-named tables of different databases.

    Only where a column is qualified by a database: Spark resolves the other queries itself. A
    column that is qualified by the table's name alone belongs to the table of the innermost SELECT
    that has one; where that SELECT has several, the qualifier is left, and Spark reports it.

    Args:
        selects: by a reference's start, the id of the SELECT that reads it.
        claimed: starts of the columns that are resolved by a table's full name.
        shift: from the positions of columns to those of references.
    """
    result = list(references)
    groups: dict[str, list[int]] = {}
    for index, reference in enumerate(references):
        if reference.alias is not None and isinstance(reference.table, TableName):
            groups.setdefault(reference.table.name.lower(), []).append(index)
    for name, members in groups.items():
        spellings = {str(references[index].table).lower() for index in members}
        has_database = any(name in (part[0] for part in column.parts[1:]) for column in columns)
        if len(spellings) < 2 or not has_database:
            continue
        for index in members:
            parts = references[index].table.parts  # type: ignore[union-attr]
            alias = ".".join(parts) if len(parts) > 1 else f"({name})"
            result[index] = replace(result[index], alias=alias)
        for column in columns:
            first, start, end = column.parts[0]
            if first != name or start in claimed:
                continue
            for select in column.selects:
                candidates = [i for i in members if selects.get(references[i].start) == select]
                if len(candidates) == 1:
                    span = (start + shift, end + shift)
                    owner = result[candidates[0]]
                    result[candidates[0]] = replace(owner, qualifiers=(*owner.qualifiers, span))
                if candidates:
                    break
    return result
