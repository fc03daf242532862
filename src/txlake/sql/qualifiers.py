"""Qualifiers of columns: which table of a query `t`, `db.t` or `lake.db.t` before a column means.

Owns the aliases by which tables are told apart that have one name in several databases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from txlake.statements import Reference, TableName


@dataclass(frozen=True, slots=True)
class Column:
    """A column with a qualifier.

    Attributes:
        parts: name in lower case, start and end of each part before the column's own name.
        selects: the SELECTs that it stands in, the innermost first.
    """

    parts: tuple[tuple[str, int, int], ...]
    selects: tuple[int, ...]


def columns_in(tree: exp.Expr, offset: int) -> Iterator[Column]:
    """The columns with a qualifier. `offset`: from sqlglot's positions to the caller's."""
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if len(parts) > 1 and all(part.meta.get("start") is not None for part in parts[:-1]):
            yield Column(
                tuple(
                    (part.name.lower(), part.meta["start"] + offset, part.meta["end"] + 1 + offset)
                    for part in parts[:-1]
                ),
                tuple(selects_around(column)),
            )


def selects_around(node: exp.Expr) -> Iterator[int]:
    """The SELECTs that a node stands in, the innermost first."""
    while (select := node.parent_select) is not None:
        yield id(select)
        node = select


def qualified(
    columns: Sequence[Column], name: Sequence[str], claimed: set[int]
) -> Iterator[tuple[int, int]]:
    """Where columns are qualified by a table's full name, each place once."""
    wanted = [part.lower() for part in name]
    if len(wanted) < 2:
        return
    for column in columns:
        start = column.parts[0][1]
        if start not in claimed and [part[0] for part in column.parts[: len(wanted)]] == wanted:
            claimed.add(start)
            yield start, column.parts[len(wanted) - 1][2]


def told_apart(
    references: Sequence[Reference],
    selects: Mapping[int, int | None],
    columns: Sequence[Column],
    claimed: set[int],
    shift: int,
) -> list[Reference]:
    """The references, of which none shares its alias with a table of another database.

    Only where a column has a database before its table: Spark tells the others apart itself. A
    column with the table's name alone goes to the table of the innermost SELECT that has one; where
    that has several, the column keeps a qualifier that no table has any more.

    Args:
        selects: by a reference's start, the SELECT whose FROM it stands in.
        claimed: the columns that have their table by its full name.
        shift: from the positions of columns to those of references.
    """
    made = list(references)
    groups: dict[str, list[int]] = {}
    for index, one in enumerate(references):
        if one.alias is not None and isinstance(one.table, TableName):
            groups.setdefault(one.table.name.lower(), []).append(index)
    for name, members in groups.items():
        spellings = {str(references[index].table).lower() for index in members}
        has_database = any(name in (part[0] for part in column.parts[1:]) for column in columns)
        if len(spellings) < 2 or not has_database:
            continue
        for index in members:
            parts = references[index].table.parts  # type: ignore[union-attr]
            alias = ".".join(parts) if len(parts) > 1 else f"({name})"
            made[index] = replace(made[index], alias=alias)
        for column in columns:
            first, start, end = column.parts[0]
            if first != name or start in claimed:
                continue
            for select in column.selects:
                own = [i for i in members if selects.get(references[i].start) == select]
                if len(own) == 1:
                    place = (start + shift, end + shift)
                    one = made[own[0]]
                    made[own[0]] = replace(one, qualifiers=(*one.qualifiers, place))
                if own:
                    break
    return made
