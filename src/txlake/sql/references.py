"""From a range of tokens to a SQL text with the tables that it reads, found by sqlglot.

The text stays as it was written. What sqlglot sees is a copy of equal length in which Spark's own
clauses that it doesn't know (time travel, options, TABLE) are blanks, so that positions hold. For a
query that it doesn't understand all the same, Spark's parser names the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError

from txlake.errors import InvalidRequest
from txlake.sql.descriptions import described
from txlake.sql.dialect import PARSER_FAILURES, dialect_of
from txlake.sql.qualifiers import Column, columns_in, qualified, selects_around, told_apart
from txlake.sql.questions import questions
from txlake.sql.table_changes import calls
from txlake.sql.tokens import Kind, SourceText, Token, describe, words
from txlake.sql.travel import Clause, clauses, path_suffix
from txlake.statements import (
    Reference,
    SqlText,
    Table,
    TableName,
    TablePath,
    TimeTravel,
    is_place,
)

Scope = tuple[tuple[TableName, str], ...]
"""Tables of the statement itself that an expression may name in full, and what stands for each."""

_FILE_FORMATS = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "binaryfile", "xml"})
_BEFORE_TABLE = frozenset({"(", ")", "UNION", "ALL", "DISTINCT", "EXCEPT", "INTERSECT", "MINUS"})
_BETWEEN_OPERANDS = words("= == <> != < > <= >= <=> / % || | & ^ . , AND OR")
_QUERY = ("", "")
_EXPRESSION = ("SELECT 1 WHERE (", "\n)")
_RELATION = ("SELECT * FROM ", "")
_CONTEXT = 10**9
_NAME_PARTS_MAX = 3


def query_text(source: SourceText, tokens: Sequence[Token]) -> SqlText:
    """A query.

    Raises:
        InvalidRequest: it isn't one, pointing at the place.
    """
    part = _Slice(source, tokens, *_QUERY)
    if part.named is None and not isinstance(part.tree, (exp.Query, exp.Values)):
        raise source.error("expected a query", part.start)
    return part.sql_text()


def expression_text(source: SourceText, tokens: Sequence[Token], scope: Scope = ()) -> SqlText:
    """A condition or a value. Raises as `query_text` does."""
    if tokens[0].upper in _BETWEEN_OPERANDS:
        raise source.error(f"unexpected {describe(tokens[0])}", tokens[0].start)
    part = _Slice(source, tokens, *_EXPRESSION)
    where = part.tree.args.get("where")
    inside = where.this if isinstance(where, exp.Where) else None
    if isinstance(inside, exp.Paren):
        inside = inside.this
    elif not (isinstance(inside, exp.Subquery) and tokens[0].text == "("):
        inside = None  # a query without the parentheses that make it a value
    if isinstance(inside, exp.Alias):
        start = inside.args["alias"].meta.get("start")
        place = part.start if start is None else start + part.offset
        raise source.error("an expression has no alias here", place)
    if not isinstance(inside, exp.Expr) or isinstance(inside, (exp.Aliases, exp.Tuple, exp.Star)):
        raise source.error("expected one expression", part.start)
    return part.sql_text(scope)


def relation_query(source: SourceText, tokens: Sequence[Token]) -> tuple[SqlText, str | None]:
    """A table or a subquery with its alias, as the query of all its rows; and its name.

    The name is its alias, or else the table's own name. Raises as `query_text` does.
    """
    part = _Slice(source, tokens, *_RELATION)
    clause = part.tree.args.get("from_") or part.tree.args.get("from")
    relation = clause.this if isinstance(clause, exp.From) else None
    if not isinstance(relation, (exp.Table, exp.Subquery, exp.Values)) or any(
        part.tree.args.get(key) for key in ("where", "joins", "group", "laterals", "order", "limit")
    ):
        raise source.error("expected one table or one query in parentheses", part.start)
    sql = part.sql_text()
    name = relation.alias or (relation.name if isinstance(relation, exp.Table) else "")
    if not relation.alias and sql.references and isinstance(sql.references[0].table, TablePath):
        name = ""
    return sql.after(_RELATION[0]), name or None


@dataclass(frozen=True, slots=True)
class _Found:
    start: int
    end: int
    parts: tuple[str, ...]
    has_alias: bool
    select: int | None = None


class _Slice:
    """One range of tokens; positions below are those of the whole text until the very end."""

    def __init__(
        self, source: SourceText, tokens: Sequence[Token], prefix: str, suffix: str
    ) -> None:
        self.source = source
        self.tokens = tokens
        self.start = tokens[0].start
        self.end = tokens[-1].end
        self.offset = self.start - len(prefix)  # from a position that sqlglot gives to ours
        self.index_by_end = {token.end: index for index, token in enumerate(tokens)}
        self.travels = {clause.after: clause for clause in clauses(source, tokens)}
        self.described = {one.end: one for one in described(source, tokens)}
        self.changes = {one.end: one for one in calls(source, tokens)}
        self.bare: set[int] = set()  # where the names after the keyword TABLE start
        self.questions = questions(source, tokens)
        # What Spark finds in a query that sqlglot doesn't understand.
        self.named: list[_Found] | None = None
        self.tree: exp.Expr = exp.Null()
        try:
            self.tree = self._parse(prefix + self._masked() + suffix)
        except InvalidRequest:
            self.named = self._named_by_spark() if (prefix, suffix) == _QUERY else None
            if self.named is None:
                raise

    def sql_text(self, scope: Scope = ()) -> SqlText:
        text = self.source.text[self.start : self.end]
        tables = _tables(self.tree, self.offset) if self.named is None else self.named
        found = sorted(tables, key=lambda table: table.start)
        columns = list(columns_in(self.tree, self.offset))
        references: list[Reference] = []
        claimed: set[int] = set()
        seen: set[int] = set()
        for table in found:
            if table.start in seen:
                continue
            seen.add(table.start)
            reference = self._reference(table, columns, claimed)
            if reference is not None:
                references.append(reference)
        references = [self._with_fuller(one, columns, claimed) for one in references]
        selects = {table.start - self.start: table.select for table in found}
        references = told_apart(references, selects, columns, claimed, -self.start)
        for clause in self.travels.values():
            raise self.source.error(
                "time travel goes after the name of a table, and this is none", clause.start
            )
        qualifiers = [
            (start - self.start, end - self.start, alias)
            for name, alias in scope
            for start, end in qualified(columns, name.parts, claimed)
        ]
        asked = tuple(one.moved(-self.start) for one in self.questions)
        return SqlText(text, tuple(references), tuple(sorted(qualifiers)), asked)

    def _named_by_spark(self) -> list[_Found] | None:
        """The names that Spark's parser finds; None where it may miss one, or finds no query."""
        if self.source.reader is None or self.described or self.changes:
            return None
        text = "".join(self._without_own_clauses())
        named = None if "${" in text else self.source.reader(text)
        if named is None:
            return None
        index_by_start = {token.start: index for index, token in enumerate(self.tokens)}
        found: list[_Found] = []
        for one in named:
            start = one.start + self.start
            first = index_by_start.get(start, len(self.tokens))
            last = first + 2 * len(one.parts) - 2
            written = self.tokens[first : last + 1]
            if tuple(token.name for token in written[::2]) != one.parts:
                return None
            if any(token.text != "." for token in written[1::2]):
                return None
            found.append(_Found(start, written[-1].end, one.parts, one.has_alias))
        return found

    def _without_own_clauses(self) -> list[str]:
        """The text in which what Spark doesn't know is blank, or a name."""
        pieces = list(self.source.text[self.start : self.end])
        for clause in self.travels.values():
            self._blank(pieces, clause.start, clause.end)
        for asked in self.questions:
            if asked.name.startswith("@@"):
                pieces[asked.start - self.start : asked.start - self.start + 2] = "__"
        return pieces

    def _blank(self, pieces: list[str], start: int, end: int) -> None:
        pieces[start - self.start : end - self.start] = " " * (end - start)

    def _masked(self) -> str:
        pieces = self._without_own_clauses()
        relations = [(one.start, one.end) for one in self.described.values()]
        relations += [(one.start, one.end) for one in self.changes.values()]
        for start, end in relations:  # a table's name of the same length
            pieces[start - self.start : end - self.start] = "`" + "x" * (end - start - 2) + "`"
        for index, token in enumerate(self.tokens):
            following = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
            if following is None:
                continue
            if self._shifts_unsigned(index):
                self._blank(pieces, token.start, token.end)
            if token.kind is not Kind.WORD:
                continue
            if token.upper == "TABLE" and following.kind in {Kind.WORD, Kind.QUOTED}:
                if index == 0 or self.tokens[index - 1].upper in _BEFORE_TABLE:
                    pieces[token.start - self.start : token.end - self.start] = "FROM "
                    self.bare.add(following.start)
            elif token.upper == "WITH" and following.text == "(":
                end = self.tokens[self._group_end(index + 1) - 1].end
                self._blank(pieces, token.start, end)
            elif token.upper == "MAX" and self._word(index + 2) == "LEVEL":
                end = self.tokens[min(index + 3, len(self.tokens) - 1)].end
                self._blank(pieces, token.start, end)
        return "".join(pieces)

    def _parse(self, sql: str) -> exp.Expr:
        dialect = dialect_of(self.source.rules)
        parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE, error_message_context=_CONTEXT)
        try:
            trees = parser.parse(dialect.tokenize(sql), sql)
        except ParseError as error:
            detail = error.errors[0]
            place = len(str(detail.get("start_context") or "")) + self.offset
            raise self._error(str(detail.get("description") or ""), place) from error
        except (*PARSER_FAILURES, RecursionError) as error:
            raise self.source.error("this can't be parsed", self.start) from error
        tree = trees[0] if len(trees) == 1 else None
        if tree is None:
            raise self.source.error("expected a query or an expression", self.start)
        return tree

    def _error(self, description: str, place: int) -> Exception:
        if place >= self.end:
            place = self.end
            found = "the end"
        else:
            place = max(place, self.start)
            token = next((t for t in self.tokens if t.end > place), self.tokens[-1])
            place, found = token.start, repr(token.text)
        if description.startswith("Expecting "):
            return self.source.error(f"expected {description[10:]}, found {found}", place)
        if description.startswith("Required keyword"):
            return self.source.error(f"something is missing at {found}", place)
        return self.source.error(f"unexpected {found}", place)

    def _reference(
        self,
        found: _Found,
        columns: Sequence[Column],
        claimed: set[int],
    ) -> Reference | None:
        last = self.index_by_end.get(found.end)
        if last is None:
            return None
        shown = self.described.get(found.end)
        if shown is not None:
            place = (shown.start - self.start, shown.end - self.start)
            return Reference(shown.statement.table, None, *place, shown=shown.statement)
        call = self.changes.get(found.end)
        if call is not None:
            place = (call.start - self.start, call.end - self.start)
            return Reference(call.table, None, *place, changes=call.asked)
        clause = self.travels.pop(found.end, None)
        travel = clause.travel if clause is not None else None
        table: Table = TableName(found.parts)
        quoted_place = self.tokens[last].kind is Kind.QUOTED and len(found.parts) == 2
        if quoted_place and found.parts[0].lower() == "delta":
            table, travel = self._path(found, travel, clause)
        elif quoted_place and found.parts[0].lower() in _FILE_FORMATS and is_place(found.parts[1]):
            return None
        index = last + 1
        if clause is not None:
            index = self.index_by_end[clause.end] + 1
        if self._word(index) == "WITH" and self._text(index + 1) == "(":
            index = self._group_end(index + 1)
        end = self.tokens[index - 1].end
        while self._word(index) in {"TABLESAMPLE", "REPEATABLE"} and self._text(index + 1) == "(":
            index = self._group_end(index + 1)
        alias = None
        qualifiers: list[tuple[int, int]] = []
        if not found.has_alias and found.start not in self.bare and isinstance(table, TableName):
            alias = table.name
            if len(table.parts) > 1:
                qualifiers = list(qualified(columns, table.parts, claimed))
        return Reference(
            table,
            travel,
            found.start - self.start,
            end - self.start,
            alias,
            self.tokens[index - 1].end - self.start,
            tuple((start - self.start, stop - self.start) for start, stop in qualifiers),
        )

    def _with_fuller(
        self, reference: Reference, columns: Sequence[Column], claimed: set[int]
    ) -> Reference:
        """The reference with columns' qualifiers that may be the table's name in other words."""
        table = reference.table
        if reference.alias is None or not isinstance(table, TableName):
            return reference
        fuller = [
            (
                parts[0][1] - self.start,
                parts[-1][2] - self.start,
                TableName(tuple(part[0] for part in parts)),
            )
            for column in columns
            for number in range(2, min(len(column.parts), _NAME_PARTS_MAX) + 1)
            if column.parts[0][1] not in claimed
            and (parts := column.parts[:number])[-1][0] == table.name.lower()
        ]
        return replace(reference, fuller=tuple(fuller))

    def _path(
        self, found: _Found, travel: TimeTravel | None, clause: Clause | None
    ) -> tuple[TablePath, TimeTravel | None]:
        location, suffix = path_suffix(found.parts[1])
        if suffix is not None and travel is not None:
            assert clause is not None
            raise self.source.error("the table has a moment already, by its @", clause.start)
        return TablePath(location), travel or suffix

    def _shifts_unsigned(self, index: int) -> bool:
        """Whether this is the last sign of a `>>>`, rather than the end of a nested type."""
        tokens = self.tokens[max(0, index - 2) : index + 1]
        return (
            [token.text for token in tokens] == [">", ">", ">"]
            and tokens[0].end == tokens[1].start
            and tokens[1].end == tokens[2].start
            and self.tokens[index + 1].kind in {Kind.NUMBER, Kind.WORD}
            and self._word(index + 1) != "AS"
        )

    def _group_end(self, index: int) -> int:
        """The index after the closing parenthesis of the one at `index`."""
        depth = 0
        for position in range(index, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[position].text, 0)
            if depth == 0:
                return position + 1
        raise self.source.error("this ( is never closed", self.tokens[index].start)

    def _word(self, index: int) -> str | None:
        if index >= len(self.tokens) or self.tokens[index].kind is not Kind.WORD:
            return None
        return self.tokens[index].upper

    def _text(self, index: int) -> str | None:
        return self.tokens[index].text if index < len(self.tokens) else None


def _tables(tree: exp.Expr, offset: int) -> Iterator[_Found]:
    """The tables of a tree that no common table expression in sight provides."""
    stack: list[tuple[exp.Expr, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, visible = stack.pop()
        with_clause = node.args.get("with_") or node.args.get("with")
        if isinstance(with_clause, exp.With):
            for cte in with_clause.expressions:
                name = frozenset({cte.alias.lower()})
                # A CTE doesn't see itself: `WITH t AS (SELECT * FROM t)` reads the table t.
                recursive = with_clause.args.get("recursive")
                stack.append((cte.this, visible | name if recursive else visible))
                visible |= name
        if isinstance(node, exp.Table):
            found = _found(node, offset)
            if found is not None and not (
                len(found.parts) == 1 and found.parts[0].lower() in visible
            ):
                yield found
        stack += [(child, visible) for child in node.iter_expressions() if child is not with_clause]


def _found(table: exp.Table, offset: int) -> _Found | None:
    identifiers = [
        table.args[key] for key in ("catalog", "db", "this") if table.args.get(key) is not None
    ]
    if not all(
        isinstance(part, exp.Identifier) and part.meta.get("end") is not None
        for part in identifiers
    ):
        return None  # a table function, or a name that sqlglot made up
    return _Found(
        identifiers[0].meta["start"] + offset,
        identifiers[-1].meta["end"] + 1 + offset,
        tuple(part.name for part in identifiers),
        bool(table.alias),
        next(selects_around(table), None),
    )
