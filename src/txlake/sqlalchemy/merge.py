"""MERGE as a statement of SQLAlchemy: `merge(table).using(rows).on("id").when_matched_update()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Column, FromClause, and_, bindparam, exc, values
from sqlalchemy.sql import ClauseElement, coercions, roles
from sqlalchemy.sql.base import Executable, Generative, _generative
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import Alias, SelectBase

Assignments = Mapping[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A WHEN clause.

    Attributes:
        rows: the rows that it is about: `MATCHED`, `NOT MATCHED`, `NOT MATCHED BY SOURCE`.
        action: `UPDATE`, `INSERT` or `DELETE`.
        assignments: values by column; None for those of the source, by name.
        condition: limits the rows.
    """

    rows: str
    action: str
    assignments: tuple[tuple[str, ClauseElement], ...] | None = None
    condition: ColumnElement[bool] | None = None


class Merge(Generative, Executable, ClauseElement):
    """A MERGE statement; each method returns it with one part more.

    The result's `rowcount` counts the rows that were updated, deleted or inserted.
    """

    __visit_name__ = "txlake_merge"
    inherit_cache = False
    is_dml = True

    def __init__(self, target: Any) -> None:
        self.target: Any = coercions.expect(roles.FromClauseRole, target)
        self.table: Any = self.target.element if isinstance(self.target, Alias) else self.target
        self.given_source: FromClause | None = None
        self.condition: ColumnElement[bool] | None = None
        self.whens: tuple[When, ...] = ()
        self.evolves = False

    @property
    def source(self) -> FromClause:
        """What `using` named; its columns are `source.c`. Raises ArgumentError before `using`."""
        if self.given_source is None:
            raise exc.ArgumentError("merge: name the source by using(...) first")
        return self.given_source

    @_generative
    def using(self, source: Any) -> Self:
        """Take the rows of a table, a subquery, a query, or of a list of dictionaries.

        All dictionaries have the same keys, names of the target's columns. Raises ArgumentError
        for other rows.
        """
        if isinstance(source, Sequence) and not isinstance(source, str):
            self.given_source = _values(self.table, source)
        elif isinstance(source, SelectBase):
            self.given_source = source.subquery("source")
        else:
            self.given_source = coercions.expect(roles.FromClauseRole, source)
        return self

    @_generative
    def on(self, *conditions: str | ColumnElement[bool]) -> Self:
        """Match rows by a condition, or by columns that both have, given as their names."""
        found = [
            self.target.c[one] == self.source.c[one] if isinstance(one, str) else one
            for one in conditions
        ]
        self.condition = and_(*found)
        return self

    @_generative
    def with_schema_evolution(self) -> Self:
        """Add the source's new columns to the table."""
        self.evolves = True
        return self

    def when_matched_update(
        self, values: Assignments | None = None, condition: ColumnElement[bool] | None = None
    ) -> Self:
        """Update matched rows: the given columns, or all that the source has."""
        return self._when("MATCHED", "UPDATE", values, condition)

    def when_matched_delete(self, condition: ColumnElement[bool] | None = None) -> Self:
        """Delete matched rows."""
        return self._when("MATCHED", "DELETE", None, condition)

    def when_not_matched_insert(
        self, values: Assignments | None = None, condition: ColumnElement[bool] | None = None
    ) -> Self:
        """Insert the source's rows that match none."""
        return self._when("NOT MATCHED", "INSERT", values, condition)

    def when_not_matched_by_source_update(
        self, values: Assignments, condition: ColumnElement[bool] | None = None
    ) -> Self:
        """Update the table's rows that match none."""
        return self._when("NOT MATCHED BY SOURCE", "UPDATE", values, condition)

    def when_not_matched_by_source_delete(
        self, condition: ColumnElement[bool] | None = None
    ) -> Self:
        """Delete the table's rows that match none."""
        return self._when("NOT MATCHED BY SOURCE", "DELETE", None, condition)

    @_generative
    def _when(
        self,
        rows: str,
        action: str,
        values: Assignments | None,
        condition: ColumnElement[bool] | None,
    ) -> Self:
        assignments = None if values is None else tuple(self._assigned(values))
        self.whens = (
            *self.whens,
            When(rows=rows, action=action, assignments=assignments, condition=condition),
        )
        return self

    def _assigned(self, values: Assignments) -> Iterable[tuple[str, ClauseElement]]:
        """Yield each column's name with its value. Raises ArgumentError for an unknown column."""
        for key, value in values.items():
            name = key if isinstance(key, str) else key.key
            column = _column(self.table, name)
            if not isinstance(value, ClauseElement):
                value = bindparam(None, value, type_=column.type, unique=True)
            yield column.name, value


def merge(target: Any) -> Merge:
    """Return a MERGE into a table, an alias of one, or a mapped class; `using` and `on` follow."""
    return Merge(target)


def _values(table: Any, rows: Sequence[Mapping[str, Any]]) -> FromClause:
    """Return rows as a FROM clause `source`, with the types of the table's columns.

    Raises ArgumentError without rows, and for rows with other keys than the first.
    """
    names = list(rows[0]) if rows else []
    for row in rows:
        if not names or row.keys() != rows[0].keys():
            raise exc.ArgumentError(
                f"merge: expected dictionaries with the same keys, found {list(row)}, first {names}"
            )
    if not names:
        raise exc.ArgumentError("merge: expected at least one row with a value, found none")
    columns = [Column(name, _column(table, name).type) for name in names]
    return values(*columns, name="source").data(
        [tuple(row[name] for name in names) for row in rows]
    )


def _column(table: Any, name: str) -> Column[Any]:
    """Return a table's column. Raises ArgumentError if it has none of the name."""
    column: Column[Any] | None = table.c.get(name)
    if column is None:
        raise exc.ArgumentError(
            f"merge: {table.name} has no column {name!r}; it has {', '.join(table.c.keys())}"
        )
    return column
