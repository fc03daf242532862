"""What a statement holds besides names: SQL as its author wrote it, constants, PySpark's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from txlake.log.predicate_nodes import LocalTime
from txlake.protocol.partition_values import PartitionScalar
from txlake.statements.descriptions import Description
from txlake.statements.names import ChangeRange, Table, TableName, TimeTravel, quoted


@dataclass(frozen=True, slots=True)
class Reference:
    """One place in a SQL text where a table is read.

    Attributes:
        table: the table named there.
        travel: the moment of it, None for now.
        start, end: what to replace, positions in the owning text, `end` exclusive: the name with
            its time travel clause, without its alias.
        alias: the alias that a replacement needs so that the text's columns still resolve; None
            where the author gave one.
        alias_at: where that alias is inserted.
        qualifiers: (start, end) of the qualifiers of columns (`db.t` in `db.t.id`) that become
            the alias.
        fuller: (start, end, name) of qualifiers that have more or fewer parts than the table's
            name here (`db.t` in `SELECT db.t.id FROM t`), and may mean it, by the database in use.
        shown: the DESCRIBE of the table that stands there, instead of its rows.
        changes: the versions whose changes stand there, instead of its rows.
    """

    table: Table
    travel: TimeTravel | None
    start: int
    end: int
    alias: str | None = None
    alias_at: int = 0
    qualifiers: tuple[tuple[int, int], ...] = ()
    fuller: tuple[tuple[int, int, TableName], ...] = ()
    shown: Description | None = None
    changes: ChangeRange | None = None

    @property
    def is_told_apart(self) -> bool:
        """Whether its alias is one that no table of the same name in another database has."""
        return isinstance(self.table, TableName) and self.alias not in {None, self.table.name}

    def moved(self, by: int) -> Reference:
        """The same reference in a text that has `by` characters more in front."""
        return replace(
            self,
            start=self.start + by,
            end=self.end + by,
            alias_at=self.alias_at + by,
            qualifiers=tuple((start + by, end + by) for start, end in self.qualifiers),
            fuller=tuple((start + by, end + by, name) for start, end, name in self.fuller),
        )


@dataclass(frozen=True, slots=True)
class Question:
    """One place in a SQL text that asks about the session: `@@SPID`, `DB_NAME(7)`.

    Attributes:
        name: what is asked, in capitals: `@@SPID`, `DB_NAME`.
        start, end: positions in the owning text, `end` exclusive.
        operands: (start, end) of what Spark evaluates, in order.
        literals: the arguments that are read here, strings all of them; these have no operands.
        alias: the name of the column, where it is one of a SELECT list and has no other.
    """

    name: str
    start: int
    end: int
    operands: tuple[tuple[int, int], ...] = ()
    literals: tuple[str, ...] = ()
    alias: str | None = None

    def moved(self, by: int) -> Question:
        """The same question in a text that has `by` characters more in front."""
        return replace(
            self,
            start=self.start + by,
            end=self.end + by,
            operands=tuple((start + by, end + by) for start, end in self.operands),
        )

    def edits(self, answer: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """(start, end, new) of what becomes of its place; the operands stay where they are.

        `answer`: what stands before, between and after the operands.
        """
        assert len(answer) == len(self.operands) + 1, (self, answer)
        starts = [self.start, *(end for _, end in self.operands)]
        ends = [*(start for start, _ in self.operands), self.end]
        alias = "" if self.alias is None else f" AS {quoted(self.alias, always=True)}"
        *most, last = answer
        yield from zip(starts, ends, [*most, last + alias])


@dataclass(frozen=True, slots=True)
class SqlText:
    """An expression or a query as its author wrote it; positions are relative to `text`.

    Attributes:
        references: the tables that it reads, in the order of the text.
        qualifiers: (start, end, name) of the full names of a DML statement's own target before
            columns (`db.t` in `db.t.id`): what they become, the target's alias.
        questions: what it asks about the session; none once they are answered.
    """

    text: str
    references: tuple[Reference, ...] = ()
    qualifiers: tuple[tuple[int, int, str], ...] = ()
    questions: tuple[Question, ...] = ()

    def after(self, head: str) -> SqlText:
        """The same text behind a head that reads and asks nothing."""
        by = len(head)
        return SqlText(
            head + self.text,
            tuple(one.moved(by) for one in self.references),
            tuple((start + by, end + by, name) for start, end, name in self.qualifiers),
            tuple(one.moved(by) for one in self.questions),
        )

    def answered(self, answer: Callable[[Question], Sequence[str]]) -> SqlText:
        """The text with an answer for each question, as `Question.edits` takes it."""
        edits = sorted(edit for one in self.questions for edit in one.edits(answer(one)))

        def at(place: int) -> int:
            return place + sum(len(new) - end + start for start, end, new in edits if end <= place)

        def moved(one: Reference) -> Reference:
            return replace(
                one,
                start=at(one.start),
                end=at(one.end),
                alias_at=at(one.alias_at),
                qualifiers=tuple((at(start), at(end)) for start, end in one.qualifiers),
                fuller=tuple((at(start), at(end), name) for start, end, name in one.fuller),
            )

        return SqlText(
            _edited(self.text, edits),
            tuple(moved(one) for one in self.references),
            tuple((at(start), at(end), name) for start, end, name in self.qualifiers),
        )

    def in_database(self, is_same: Callable[[TableName, TableName], bool]) -> SqlText:
        """The text where a database is in use: a table's fuller names qualify its columns.

        `is_same`: whether two names mean one table there.
        """
        if not any(one.fuller or one.is_told_apart for one in self.references):
            return self
        taken: set[int] = set()
        references: list[Reference] = []
        for one in self.references:
            found = [
                (start, end)
                for start, end, name in one.fuller
                if start not in taken
                and isinstance(one.table, TableName)
                and is_same(name, one.table)
            ]
            taken.update(start for start, _ in found)
            same = next((other for other in references if _is_again(one, other, is_same)), one)
            qualifiers = (*one.qualifiers, *found)
            references.append(replace(one, alias=same.alias, qualifiers=qualifiers, fuller=()))
        return replace(self, references=tuple(references))

    def rewritten(self, replacement: Callable[[Reference], str | None]) -> str:
        """The text with tables replaced; everything else stays as it was written.

        `replacement` gives the SQL that stands for the table (a quoted view name), or None to
        leave the reference as it is.
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
        return _edited(self.text, sorted(edits, key=lambda edit: edit[:2]))


def _is_again(
    one: Reference, other: Reference, is_same: Callable[[TableName, TableName], bool]
) -> bool:
    """Whether both are one table, told apart by how its name is written."""
    return (
        one.is_told_apart
        and other.is_told_apart
        and isinstance(one.table, TableName)
        and isinstance(other.table, TableName)
        and is_same(one.table, other.table)
    )


def _edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with each (start, end) replaced; ascending, none over another."""
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
    """A condition as its author wrote it, for messages and history."""
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
    """Rows that a query gives; Spark runs it."""

    sql: SqlText


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of plain constants, all of one length; no Spark is needed for them."""

    rows: tuple[tuple[Constant | Default, ...], ...]


@dataclass(frozen=True, slots=True)
class ComputedValues:
    """Rows of expressions and DEFAULT, all of one length."""

    rows: tuple[tuple[SqlText | Default, ...], ...]


Source = Query | NativeFrame | Values | ComputedValues
