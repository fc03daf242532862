"""Parts of statements besides names: SQL texts as written, constants, PySpark's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from txlake.log.predicate_nodes import LocalTime
from txlake.protocol.partition_values import PartitionScalar
from txlake.sql.statements.descriptions import Description
from txlake.sql.statements.names import ChangeRange, Table, TableName, TimeTravel, quoted


@dataclass(frozen=True, slots=True)
class Reference:
    """One position in a SQL text where a table is read.

    Attributes:
        table: the table named there.
        travel: the version to read; None for the newest.
        start, end: the range to replace, positions in the owning text, `end` exclusive: the name
            with its time travel clause, without its alias.
        alias: the alias that a replacement needs so that the text's columns still resolve; None
            where the text has one.
        alias_at: the position at which to insert the alias.
        qualifiers: (start, end) of the qualifiers of columns (`db.t` in `db.t.id`) that the alias
            replaces.
        possible_qualifiers: (start, end, name) of qualifiers with more or fewer parts than the
            table's name here (`db.t` in `SELECT db.t.id FROM t`), which may mean the table,
            depending on the current database.
        description: the DESCRIBE of the table that is read instead of its rows.
        changes: the versions whose changes are read instead of the table's rows.
    """

    table: Table
    travel: TimeTravel | None
    start: int
    end: int
    alias: str | None = None
    alias_at: int = 0
    qualifiers: tuple[tuple[int, int], ...] = ()
    possible_qualifiers: tuple[tuple[int, int, TableName], ...] = ()
    description: Description | None = None
    changes: ChangeRange | None = None

    @property
    def is_disambiguated(self) -> bool:
        """Whether the alias isn't the table's name, because two databases have such a table."""
        return isinstance(self.table, TableName) and self.alias not in {None, self.table.name}

    def moved(self, by: int) -> Reference:
        """Return the reference for a text with `by` more characters in front."""
        return replace(
            self,
            start=self.start + by,
            end=self.end + by,
            alias_at=self.alias_at + by,
            qualifiers=tuple((start + by, end + by) for start, end in self.qualifiers),
            possible_qualifiers=tuple(
                (start + by, end + by, name) for start, end, name in self.possible_qualifiers
            ),
        )


@dataclass(frozen=True, slots=True)
class SessionFunction:
    """A use of a function or variable of the session in a SQL text: `@@SPID`, `DB_NAME(7)`.

    Attributes:
        name: the function or variable, in capitals: `@@SPID`, `DB_NAME`.
        start, end: positions in the owning text, `end` exclusive.
        operands: (start, end) of the arguments that Spark evaluates, in order.
        literals: the values of string arguments, if the function takes only those; there are no
            operands then.
        alias: the column's name, where the use is a column of a SELECT list without an alias.
    """

    name: str
    start: int
    end: int
    operands: tuple[tuple[int, int], ...] = ()
    literals: tuple[str, ...] = ()
    alias: str | None = None

    def moved(self, by: int) -> SessionFunction:
        """Return the same use for a text with `by` more characters in front."""
        return replace(
            self,
            start=self.start + by,
            end=self.end + by,
            operands=tuple((start + by, end + by) for start, end in self.operands),
        )

    def edits(self, pieces: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, new text) of the edits that replace the use by its value.

        `pieces`: the texts before, between and after the operands, which stay in place.
        """
        assert len(pieces) == len(self.operands) + 1, (self, pieces)
        starts = [self.start, *(end for _, end in self.operands)]
        ends = [*(start for start, _ in self.operands), self.end]
        alias = "" if self.alias is None else f" AS {quoted(self.alias, always=True)}"
        *most, last = pieces
        yield from zip(starts, ends, [*most, last + alias])


@dataclass(frozen=True, slots=True)
class SqlText:
    """An expression or a query as written; positions are relative to `text`.

    Attributes:
        references: the tables that the text reads, in the order of the text.
        qualifiers: (start, end, alias) of column qualifiers that are the full name of a DML
            statement's target (`db.t` in `db.t.id`), with the alias that replaces them.
        session_functions: the uses of session functions; empty once they are replaced by values.
    """

    text: str
    references: tuple[Reference, ...] = ()
    qualifiers: tuple[tuple[int, int, str], ...] = ()
    session_functions: tuple[SessionFunction, ...] = ()

    def with_prefix(self, prefix: str) -> SqlText:
        """Return the text after a prefix that has no tables and no session functions."""
        by = len(prefix)
        return SqlText(
            prefix + self.text,
            tuple(reference.moved(by) for reference in self.references),
            tuple((start + by, end + by, name) for start, end, name in self.qualifiers),
            tuple(function.moved(by) for function in self.session_functions),
        )

    def with_session_values(self, value: Callable[[SessionFunction], Sequence[str]]) -> SqlText:
        """Return the text with its session functions replaced by values; it has none left.

        `value` returns the pieces of a use, as `SessionFunction.edits` takes them.
        """
        edits = sorted(
            edit for function in self.session_functions for edit in function.edits(value(function))
        )

        def shifted(position: int) -> int:
            """Return a position of the old text in the new one."""
            return position + sum(
                len(new) - end + start for start, end, new in edits if end <= position
            )

        def moved(reference: Reference) -> Reference:
            """Return the reference with its positions in the new text."""
            return replace(
                reference,
                start=shifted(reference.start),
                end=shifted(reference.end),
                alias_at=shifted(reference.alias_at),
                qualifiers=tuple(
                    (shifted(start), shifted(end)) for start, end in reference.qualifiers
                ),
                possible_qualifiers=tuple(
                    (shifted(start), shifted(end), name)
                    for start, end, name in reference.possible_qualifiers
                ),
            )

        return SqlText(
            _apply_edits(self.text, edits),
            tuple(moved(reference) for reference in self.references),
            tuple((shifted(start), shifted(end), name) for start, end, name in self.qualifiers),
        )

    def in_database(self, is_same: Callable[[TableName, TableName], bool]) -> SqlText:
        """Return the text as read in a current database, with `possible_qualifiers` resolved.

        `is_same`: whether two names mean the same table in that database.
        """
        if not any(
            reference.possible_qualifiers or reference.is_disambiguated
            for reference in self.references
        ):
            return self
        claimed: set[int] = set()
        references: list[Reference] = []
        for reference in self.references:
            resolved = [
                (start, end)
                for start, end, name in reference.possible_qualifiers
                if start not in claimed
                and isinstance(reference.table, TableName)
                and is_same(name, reference.table)
            ]
            claimed.update(start for start, _ in resolved)
            same = next(
                (other for other in references if _is_same_table(reference, other, is_same)),
                reference,
            )
            qualifiers = (*reference.qualifiers, *resolved)
            references.append(
                replace(reference, alias=same.alias, qualifiers=qualifiers, possible_qualifiers=())
            )
        return replace(self, references=tuple(references))

    def rewritten(self, replacement: Callable[[Reference], str | None]) -> str:
        """Return the text with tables replaced; everything else stays as written.

        `replacement` returns the SQL that replaces the table (a quoted view name), or None to leave
        the reference as it is.
        """
        edits = [(start, end, quoted(name, always=True)) for start, end, name in self.qualifiers]
        for reference in self.references:
            name = replacement(reference)
            if name is None:
                continue
            edits.append((reference.start, reference.end, name))
            if reference.alias is not None:
                alias = quoted(reference.alias, always=True)
                edits.append((reference.alias_at, reference.alias_at, f" AS {alias}"))
                edits += [(start, end, alias) for start, end in reference.qualifiers]
        return _apply_edits(self.text, sorted(edits, key=lambda edit: edit[:2]))


def _is_same_table(
    first: Reference, second: Reference, is_same: Callable[[TableName, TableName], bool]
) -> bool:
    """Return whether two disambiguated references name one table in different spellings."""
    return (
        first.is_disambiguated
        and second.is_disambiguated
        and isinstance(first.table, TableName)
        and isinstance(second.table, TableName)
        and is_same(first.table, second.table)
    )


def _apply_edits(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return the text with each (start, end) replaced; edits ascend and don't overlap."""
    pieces: list[str] = []
    position = 0
    for start, end, new in edits:
        pieces += (text[position:start], new)
        position = end
    return "".join(pieces) + text[position:]


@dataclass(frozen=True, slots=True)
class NativeColumn:
    """A condition or value given as a PySpark `Column`."""

    column: object


def condition_text(expression: SqlText | NativeColumn) -> str:
    """Return a condition as text, for messages and history: SQL as written, else PySpark's text."""
    return expression.text if isinstance(expression, SqlText) else str(expression.column)


@dataclass(frozen=True, slots=True)
class NativeFrame:
    """Rows given as a DataFrame: of Spark, pandas, pyarrow or polars."""

    frame: object


@dataclass(frozen=True, slots=True)
class NativeType:
    """A column's type given as a PySpark `DataType`."""

    data_type: object


class Default(Enum):
    """The keyword DEFAULT: the column's default value."""

    DEFAULT = "DEFAULT"


class Star(Enum):
    """The `*` of `UPDATE SET *` and `INSERT *`: every column of the source, by name."""

    STAR = "*"


DEFAULT = Default.DEFAULT
STAR = Star.STAR

Constant = PartitionScalar | LocalTime
"""A literal. A `LocalTime` is a TIMESTAMP without a zone, a naive datetime a TIMESTAMP_NTZ."""

Expression = SqlText | NativeColumn


@dataclass(frozen=True, slots=True)
class Query:
    """The rows of a query that Spark runs."""

    sql: SqlText


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of constants, all of one length, which need no Spark."""

    rows: tuple[tuple[Constant | Default, ...], ...]


@dataclass(frozen=True, slots=True)
class ComputedValues:
    """Rows of expressions and DEFAULT, all of one length."""

    rows: tuple[tuple[SqlText | Default, ...], ...]


Source = Query | NativeFrame | Values | ComputedValues
