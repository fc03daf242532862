"""Table references: turns a range of tokens into a SQL text with the tables that it reads.

The text stays as written. sqlglot parses a copy of equal length in which clauses that it doesn't
know (time travel, options, TABLE) are blanked, so that positions hold. For a query that sqlglot
can't parse even so, Spark's parser finds the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError

from txlake.errors import InvalidRequest
from txlake.sql.descriptions import find_descriptions
from txlake.sql.dialect import PARSER_FAILURES, dialect_of
from txlake.sql.qualifiers import (
    QualifiedColumn,
    disambiguated,
    qualified_columns,
    qualifier_spans,
    selects_around,
)
from txlake.sql.session_functions import find_session_functions
from txlake.sql.statements import (
    Reference,
    SqlText,
    Table,
    TableName,
    TablePath,
    TimeTravel,
    is_place,
)
from txlake.sql.table_changes import find_table_changes
from txlake.sql.tokens import Kind, SourceText, Token, describe, words
from txlake.sql.travel import Clause, find_clauses, path_suffix

Scope = tuple[tuple[TableName, str], ...]
"""The statement's own tables that an expression may name in full, each with its alias."""

_FILE_FORMATS = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "binaryfile", "xml"})
_BEFORE_TABLE = frozenset({"(", ")", "UNION", "ALL", "DISTINCT", "EXCEPT", "INTERSECT", "MINUS"})
_BETWEEN_OPERANDS = words("= == <> != < > <= >= <=> / % || | & ^ . , AND OR")
_QUERY = ("", "")
_EXPRESSION = ("SELECT 1 WHERE (", "\n)")
_RELATION = ("SELECT * FROM ", "")
_CONTEXT = 10**9
_NAME_PARTS_MAX = 3


def query_text(source: SourceText, tokens: Sequence[Token]) -> SqlText:
    """Return a query's text and references.

    Raises InvalidRequest, with the position, if the tokens are no query.
    """
    part = _TokenRange(source, tokens, *_QUERY)
    if part.spark_tables is None and not isinstance(part.tree, (exp.Query, exp.Values)):
        raise source.error("expected a query", part.start)
    return part.sql_text()


def expression_text(source: SourceText, tokens: Sequence[Token], scope: Scope = ()) -> SqlText:
    """Return the text and references of a condition or a value.

    Raises InvalidRequest, with the position, if the tokens aren't one expression without an alias.
    """
    if tokens[0].upper in _BETWEEN_OPERANDS:
        raise source.error(f"unexpected {describe(tokens[0])}", tokens[0].start)
    part = _TokenRange(source, tokens, *_EXPRESSION)
    where = part.tree.args.get("where")
    inside = where.this if isinstance(where, exp.Where) else None
    if isinstance(inside, exp.Paren):
        inside = inside.this
    elif not (isinstance(inside, exp.Subquery) and tokens[0].text == "("):
        inside = None  # a query without the parentheses that make it a value
    if isinstance(inside, exp.Alias):
        start = inside.args["alias"].meta.get("start")
        position = part.start if start is None else start + part.offset
        raise source.error("an expression has no alias here", position)
    if not isinstance(inside, exp.Expr) or isinstance(inside, (exp.Aliases, exp.Tuple, exp.Star)):
        raise source.error("expected one expression", part.start)
    return part.sql_text(scope)


def relation_query(source: SourceText, tokens: Sequence[Token]) -> tuple[SqlText, str | None]:
    """Return the query of all rows of a table or subquery, and its name.

    The name is the alias, or else the table's own name; None for a subquery or a path without an
    alias. Raises InvalidRequest for anything else.
    """
    part = _TokenRange(source, tokens, *_RELATION)
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
    return sql.with_prefix(_RELATION[0]), name or None


@dataclass(frozen=True, slots=True)
class _TableSpan:
    start: int
    end: int
    parts: tuple[str, ...]
    has_alias: bool
    select: int | None = None


class _TokenRange:
    """A range of tokens; positions are those of the whole text, except in the resulting SqlText."""

    def __init__(
        self, source: SourceText, tokens: Sequence[Token], prefix: str, suffix: str
    ) -> None:
        self.source = source
        self.tokens = tokens
        self.start = tokens[0].start
        self.end = tokens[-1].end
        self.offset = self.start - len(prefix)  # from sqlglot's positions to ours
        self.index_by_end = {token.end: index for index, token in enumerate(tokens)}
        self.travels = {clause.after: clause for clause in find_clauses(source, tokens)}
        self.descriptions = {span.end: span for span in find_descriptions(source, tokens)}
        self.changes = {call.end: call for call in find_table_changes(source, tokens)}
        self.bare: set[int] = set()  # starts of the names after the keyword TABLE
        self.session_functions = find_session_functions(source, tokens)
        # The tables that Spark finds in a query that sqlglot can't parse.
        self.spark_tables: list[_TableSpan] | None = None
        self.tree: exp.Expr = exp.Null()
        try:
            self.tree = self._parse(prefix + self._masked_text() + suffix)
        except InvalidRequest:
            self.spark_tables = self._tables_by_spark() if (prefix, suffix) == _QUERY else None
            if self.spark_tables is None:
                raise

    def sql_text(self, scope: Scope = ()) -> SqlText:
        """Return the range as a text with its references; `scope` names the statement's own tables.

        Raises InvalidRequest for time travel that follows no table.
        """
        text = self.source.text[self.start : self.end]
        tables = _tables(self.tree, self.offset) if self.spark_tables is None else self.spark_tables
        ordered = sorted(tables, key=lambda table: table.start)
        columns = list(qualified_columns(self.tree, self.offset))
        references: list[Reference] = []
        claimed: set[int] = set()
        starts: set[int] = set()
        for table in ordered:
            if table.start in starts:
                continue
            starts.add(table.start)
            reference = self._reference(table, columns, claimed)
            if reference is not None:
                references.append(reference)
        references = [
            self._with_possible_qualifiers(reference, columns, claimed) for reference in references
        ]
        selects = {table.start - self.start: table.select for table in ordered}
        references = disambiguated(references, selects, columns, claimed, -self.start)
        for clause in self.travels.values():
            raise self.source.error(
                "time travel goes after the name of a table, and this is none", clause.start
            )
        qualifiers = [
            (start - self.start, end - self.start, alias)
            for name, alias in scope
            for start, end in qualifier_spans(columns, name.parts, claimed)
        ]
        functions = tuple(function.moved(-self.start) for function in self.session_functions)
        return SqlText(text, tuple(references), tuple(sorted(qualifiers)), functions)

    def _tables_by_spark(self) -> list[_TableSpan] | None:
        """Return the tables that Spark's parser finds.

        None for no query, or where it may miss tables.
        """
        if self.source.reader is None or self.descriptions or self.changes:
            return None
        text = "".join(self._without_txlake_clauses())
        relations = None if "${" in text else self.source.reader(text)
        if relations is None:
            return None
        index_by_start = {token.start: index for index, token in enumerate(self.tokens)}
        spans: list[_TableSpan] = []
        for relation in relations:
            start = relation.start + self.start
            first = index_by_start.get(start, len(self.tokens))
            last = first + 2 * len(relation.parts) - 2
            written = self.tokens[first : last + 1]
            if tuple(token.name for token in written[::2]) != relation.parts:
                return None
            if any(token.text != "." for token in written[1::2]):
                return None
            spans.append(_TableSpan(start, written[-1].end, relation.parts, relation.has_alias))
        return spans

    def _without_txlake_clauses(self) -> list[str]:
        """Return the text as characters, without time travel and with `@@` made part of a name."""
        pieces = list(self.source.text[self.start : self.end])
        for clause in self.travels.values():
            self._blank(pieces, clause.start, clause.end)
        for function in self.session_functions:
            if function.name.startswith("@@"):
                start = function.start - self.start
                pieces[start : start + 2] = "__"
        return pieces

    def _blank(self, pieces: list[str], start: int, end: int) -> None:
        pieces[start - self.start : end - self.start] = " " * (end - start)

    def _masked_text(self) -> str:
        """Return the range for sqlglot, of the same length, without clauses that it doesn't know.

        Adds the names after the keyword TABLE to `bare`.
        """
        pieces = self._without_txlake_clauses()
        relations = [(span.start, span.end) for span in self.descriptions.values()]
        relations += [(call.start, call.end) for call in self.changes.values()]
        for start, end in relations:  # a table's name of the same length
            pieces[start - self.start : end - self.start] = "`" + "x" * (end - start - 2) + "`"
        for index, token in enumerate(self.tokens):
            following = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
            if following is None:
                continue
            if self._is_unsigned_shift(index):
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
        """Return the tree of a text. Raises InvalidRequest with the position in the whole text."""
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

    def _error(self, description: str, position: int) -> Exception:
        """Return the user's error for a mistake that sqlglot described.

        It says `expected X, found TOKEN` for a description `Expecting X`, `something is missing at
        TOKEN` for a missing keyword, and `unexpected TOKEN` for any other. `position` is one of the
        whole text; one outside the range is moved to its edge.
        """
        if position >= self.end:
            position = self.end
            actual = "the end"
        else:
            position = max(position, self.start)
            token = next((t for t in self.tokens if t.end > position), self.tokens[-1])
            position, actual = token.start, repr(token.text)
        if description.startswith("Expecting "):
            return self.source.error(f"expected {description[10:]}, found {actual}", position)
        if description.startswith("Required keyword"):
            return self.source.error(f"something is missing at {actual}", position)
        return self.source.error(f"unexpected {actual}", position)

    def _reference(
        self,
        span: _TableSpan,
        columns: Sequence[QualifiedColumn],
        claimed: set[int],
    ) -> Reference | None:
        """Return the reference for a table; None for a folder of files, and for names not in the
        text.

        Takes the table's clause out of `travels`, and adds to `claimed` the qualifiers that it
        resolves.
        """
        last = self.index_by_end.get(span.end)
        if last is None:
            return None
        description = self.descriptions.get(span.end)
        if description is not None:
            bounds = (description.start - self.start, description.end - self.start)
            statement = description.statement
            return Reference(statement.table, None, *bounds, description=statement)
        call = self.changes.get(span.end)
        if call is not None:
            bounds = (call.start - self.start, call.end - self.start)
            return Reference(call.table, None, *bounds, changes=call.change_range)
        clause = self.travels.pop(span.end, None)
        travel = clause.travel if clause is not None else None
        table: Table = TableName(span.parts)
        quoted_location = self.tokens[last].kind is Kind.QUOTED and len(span.parts) == 2
        if quoted_location and span.parts[0].lower() == "delta":
            table, travel = self._path_table(span, travel, clause)
        elif quoted_location and span.parts[0].lower() in _FILE_FORMATS and is_place(span.parts[1]):
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
        if not span.has_alias and span.start not in self.bare and isinstance(table, TableName):
            alias = table.name
            if len(table.parts) > 1:
                qualifiers = list(qualifier_spans(columns, table.parts, claimed))
        return Reference(
            table,
            travel,
            span.start - self.start,
            end - self.start,
            alias,
            self.tokens[index - 1].end - self.start,
            tuple((start - self.start, stop - self.start) for start, stop in qualifiers),
        )

    def _with_possible_qualifiers(
        self, reference: Reference, columns: Sequence[QualifiedColumn], claimed: set[int]
    ) -> Reference:
        """Return the reference with the qualifiers that may name its table in another way."""
        table = reference.table
        if reference.alias is None or not isinstance(table, TableName):
            return reference
        possible = [
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
        return replace(reference, possible_qualifiers=tuple(possible))

    def _path_table(
        self, span: _TableSpan, travel: TimeTravel | None, clause: Clause | None
    ) -> tuple[TablePath, TimeTravel | None]:
        """Return a table by its location, and its time travel by clause or by `@` suffix; None
        without.

        Raises InvalidRequest if it has both.
        """
        location, suffix = path_suffix(span.parts[1])
        if suffix is not None and travel is not None:
            assert clause is not None
            raise self.source.error("the table has a moment already, by its @", clause.start)
        return TablePath(location), travel or suffix

    def _is_unsigned_shift(self, index: int) -> bool:
        """Return whether a `>` is the last sign of `>>>`, rather than the end of a nested type."""
        tokens = self.tokens[max(0, index - 2) : index + 1]
        return (
            [token.text for token in tokens] == [">", ">", ">"]
            and tokens[0].end == tokens[1].start
            and tokens[1].end == tokens[2].start
            and self.tokens[index + 1].kind in {Kind.NUMBER, Kind.WORD}
            and self._word(index + 1) != "AS"
        )

    def _group_end(self, index: int) -> int:
        """Return the index after the parenthesis that closes the one at `index`. Raises
        InvalidRequest if none does.
        """
        depth = 0
        for position in range(index, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[position].text, 0)
            if depth == 0:
                return position + 1
        raise self.source.error("this ( is never closed", self.tokens[index].start)

    def _word(self, index: int) -> str | None:
        """Return the word at an index, in capitals; None for another kind of token, and beyond the
        last.
        """
        if index >= len(self.tokens) or self.tokens[index].kind is not Kind.WORD:
            return None
        return self.tokens[index].upper

    def _text(self, index: int) -> str | None:
        return self.tokens[index].text if index < len(self.tokens) else None


def _tables(tree: exp.Expr, offset: int) -> Iterator[_TableSpan]:
    """Yield the tables of a tree that aren't common table expressions in scope."""
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
            span = _table_span(node, offset)
            if span is not None and not (len(span.parts) == 1 and span.parts[0].lower() in visible):
                yield span
        stack += [(child, visible) for child in node.iter_expressions() if child is not with_clause]


def _table_span(table: exp.Table, offset: int) -> _TableSpan | None:
    """Return where a table is named; None for a table function, and a name that sqlglot made up."""
    identifiers = [
        table.args[key] for key in ("catalog", "db", "this") if table.args.get(key) is not None
    ]
    if not all(
        isinstance(part, exp.Identifier) and part.meta.get("end") is not None
        for part in identifiers
    ):
        return None  # a table function, or a name that sqlglot made up
    return _TableSpan(
        identifiers[0].meta["start"] + offset,
        identifiers[-1].meta["end"] + 1 + offset,
        tuple(part.name for part in identifiers),
        bool(table.alias),
        next(selects_around(table), None),
    )
