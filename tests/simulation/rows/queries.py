"""Queries over rows: FROM, joins, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, set operations, WITH.

Owns the order of these steps and the meaning of names in each. A query is executed as it is read,
because there are few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from tests.simulation.rows import functions, values
from tests.simulation.rows.expressions import Compiler, Subquery, parse_expression
from tests.simulation.rows.grouping import Aggregated, aggregates_in, always, group_keys
from tests.simulation.rows.ordering import (
    limit_rows,
    order_rows,
    to_hashable,
    value_at,
    with_order_keys,
    without_duplicates,
)
from tests.simulation.rows.scopes import ColumnName, Row, Rows, Scope, TypedExpression
from tests.simulation.rows.values import LONG
from txlake.errors import InvalidRequest
from txlake.protocol.types import DataType
from txlake.sql.dialect import DIALECT

Tables = Mapping[str, Rows]
_NOTHING = Scope(())
_UNKNOWN_CLAUSES = ("windows", "qualify", "laterals", "cluster", "distribute", "sort", "pivots")


@lru_cache(maxsize=4096)
def _tree(text: str) -> exp.Expression:
    try:
        tree = parse_one(text, dialect=DIALECT)
    except SqlglotError as error:
        raise InvalidRequest(f"not a query: {text!r}: {error}") from error
    assert isinstance(tree, exp.Expression)
    return tree


def run(text: str, tables: Tables) -> Rows:
    """Return the rows of a query over these tables, by their names in the text."""
    return _Query(tables).rows(_tree(text), _NOTHING, ())


def compiler(scope: Scope, tables: Tables) -> Compiler:
    """Return a compiler of expressions that may contain queries."""
    return Compiler(scope, _Query(tables).inner)


def expression(text: str, scope: Scope, tables: Tables) -> TypedExpression:
    """Compile the expression in a text."""
    return compiler(scope, tables).typed(parse_expression(text))


def condition(text: str, scope: Scope, tables: Tables) -> Callable[[Row], bool]:
    """Compile the condition in a text to a function of a row: whether it is true."""
    return compiler(scope, tables).condition(parse_expression(text))


class _Query:
    """Executes queries over the same tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = {name.lower(): rows for name, rows in tables.items()}

    def inner(self, node: exp.Expression, scope: Scope) -> tuple[tuple[DataType, ...], Subquery]:
        """Return the types of a subquery's columns, and its rows as a function of the outer row."""
        names_used: list[str] = []
        within = Scope(scope.names, scope.outer, names_used)
        first = self.rows(node, within, (None,) * scope.end)
        types = tuple(one.type for one in first.names)
        if not names_used:  # it doesn't depend on the outer row
            return types, lambda _: first
        return types, lambda outer: self.rows(node, within, outer)

    def rows(self, node: exp.Expression, scope: Scope, outer: Row) -> Rows:
        """Return the query's rows for an outer row of the scope."""
        with_ = node.args.get("with_")
        if with_ is not None:
            assert not with_.args.get("recursive"), f"{node!r}"
            within = _Query(self._tables)
            for one in with_.expressions:
                found = within.rows(one.this, scope, outer)
                within._tables[one.alias.lower()] = _aliased(found, one.args["alias"])
            return within._body(node, scope, outer)
        return self._body(node, scope, outer)

    def _body(self, node: exp.Expression, scope: Scope, outer: Row) -> Rows:
        match node:
            case exp.Select():
                return _Select(self, node, scope, outer).rows()
            case exp.Subquery():
                return self.rows(node.this, scope, outer)
            case exp.Values():
                return self._values(node, scope, outer)
            case exp.SetOperation():
                return self._combined(node, scope, outer)
        raise AssertionError(f"this query isn't known here: {node!r}")

    def source(self, node: exp.Expression, scope: Scope, outer: Row) -> Rows:
        """Return the rows of a name or a query in FROM, under its name there."""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            return self._range(node, scope, outer)
        if isinstance(node, exp.Table):
            known = self._tables.get(node.name.lower())
            if known is None:
                raise InvalidRequest(f"there is no table {node.sql()}")
            alias = node.args.get("alias")
            return known.qualified(node.name) if alias is None else _aliased(known, alias)
        alias = node.args.get("alias")
        found = self._body(node, scope, outer)
        return found if alias is None else _aliased(found, alias)

    def _range(self, node: exp.Table, scope: Scope, outer: Row) -> Rows:
        assert str(node.this.this).lower() == "range", f"{node!r}"
        expressions = compiler(scope, self._tables)
        bounds = [expressions.typed(one).of(outer) for one in node.this.expressions]
        alias = node.args.get("alias")
        found = Rows((ColumnName("id", LONG),), [(number,) for number in range(*bounds)])
        return found if alias is None else _aliased(found, alias)

    def _values(self, node: exp.Values, scope: Scope, outer: Row) -> Rows:
        expressions = compiler(scope, self._tables)
        cells = [[expressions.typed(cell) for cell in _cells(one)] for one in node.expressions]
        kinds = [functions.common_type_of(one.type for one in column) for column in zip(*cells)]
        rows = [
            tuple(
                functions.convert(cell, kind).of(outer)
                for cell, kind in zip(row, kinds, strict=True)
            )
            for row in cells
        ]
        names = tuple(ColumnName(f"col{place + 1}", kind) for place, kind in enumerate(kinds))
        return Rows(names, rows)

    def _combined(self, node: exp.SetOperation, scope: Scope, outer: Row) -> Rows:
        left = self.rows(node.this, scope, outer)
        right = self.rows(node.expression, scope, outer)
        if len(left.names) != len(right.names):
            raise InvalidRequest("NUM_COLUMNS_MISMATCH: both queries need as many columns")
        kinds = [
            values.common_type(one.type, other.type)
            for one, other in zip(left.names, right.names, strict=True)
        ]
        sides = [
            [
                tuple(convert(value) for convert, value in zip(converts, row, strict=True))
                for row in side.rows
            ]
            for side in (left, right)
            for converts in [[values.cast(n.type, k) for n, k in zip(side.names, kinds)]]
        ]
        assert isinstance(node, exp.Union), f"{node!r}"
        rows = sides[0] + sides[1]
        names = tuple(
            ColumnName(one.name, kind) for one, kind in zip(left.names, kinds, strict=True)
        )
        made = Rows(names, without_duplicates(rows) if node.args.get("distinct") else rows)
        made = order_rows(self.inner, node, made, None, scope, outer)
        return limit_rows(self.inner, node, made, scope, outer)


class _Select:
    """One SELECT for one row of the scope around it."""

    def __init__(self, query: _Query, node: exp.Select, scope: Scope, outer: Row) -> None:
        for clause in _UNKNOWN_CLAUSES:
            assert not node.args.get(clause), f"{clause} isn't known here: {node!r}"
        self._query, self._node, self._scope, self._outer = query, node, scope, outer

    def rows(self) -> Rows:
        """Return the rows of the SELECT."""
        node = self._node
        found = self._from()
        where = node.args.get("where")
        if where is not None:
            is_match = self._compiler(found).condition(where.this)
            if isinstance(where.this, exp.Null):
                raise InvalidRequest("FILTER_NOT_BOOLEAN: NULL is no condition of a query")
            found = Rows(found.names, [r for r in found.rows if is_match((*self._outer, *r))])
        if self._is_grouped():
            made, inputs = self._grouped(found)
        else:
            made, inputs = self._projected(self._compiler(found), found, found.rows)
        if node.args.get("distinct"):
            made, inputs = Rows(made.names, without_duplicates(made.rows)), None
        inner = self._query.inner
        made = order_rows(inner, node, made, inputs, self._scope, self._outer)
        return limit_rows(inner, node, made, self._scope, self._outer)

    def _compiler(
        self, found: Rows, known: Mapping[exp.Expression, TypedExpression] | None = None
    ) -> Compiler:
        return Compiler(Scope(found.names, self._scope), self._query.inner, known or {})

    # FROM

    def _from(self) -> Rows:
        source = self._node.args.get("from_")
        if source is None:
            return Rows((), [()])
        found = self._query.source(source.this, self._scope, self._outer)
        for join in [*(source.this.args.get("joins") or []), *(self._node.args.get("joins") or [])]:
            found = self._joined(found, join)
        return found

    def _joined(self, left: Rows, join: exp.Join) -> Rows:
        right = self._query.source(join.this, self._scope, self._outer)
        using = [one.name for one in join.args.get("using") or []]
        assert join.args.get("method") is None, f"{join!r}"
        names = (*left.names, *right.names)
        both = Rows(names, [])
        if using:
            pairs = [
                (Scope(left.names).find([n])[0], Scope(right.names).find([n])[0]) for n in using
            ]
            width = len(left.names)

            def matches(row: Row) -> bool:
                own = row[len(self._outer) :]
                return all(own[a] is not None and own[a] == own[width + b] for a, b in pairs)

            is_match: Callable[[Row], bool] = matches
        elif join.args.get("on") is None:
            is_match = always
        else:
            is_match = self._compiler(both).condition(join.args["on"])
        side, kind = join.side.upper(), join.kind.upper()
        if kind in {"SEMI", "ANTI"}:
            wanted = kind == "SEMI"
            rows = [
                one
                for one in left.rows
                if any(is_match((*self._outer, *one, *other)) for other in right.rows) == wanted
            ]
            return Rows(left.names, rows)
        rows = []
        met: set[int] = set()
        for one in left.rows:
            found = False
            for place, other in enumerate(right.rows):
                if is_match((*self._outer, *one, *other)):
                    rows.append((*one, *other))
                    met.add(place)
                    found = True
            if not found and side in {"LEFT", "FULL"}:
                rows.append((*one, *(None,) * len(right.names)))
        if side in {"RIGHT", "FULL"}:
            alone = (other for place, other in enumerate(right.rows) if place not in met)
            rows += [(*(None,) * len(left.names), *other) for other in alone]
        if using:
            return self._merged(left, right, rows, using)
        return Rows(names, rows)

    def _merged(self, left: Rows, right: Rows, rows: list[Row], using: list[str]) -> Rows:
        """Merge the columns of JOIN USING: the value of the side that has one."""
        width = len(left.names)
        pairs = {
            Scope(left.names).find([name])[0]: width + Scope(right.names).find([name])[0]
            for name in using
        }
        gone = set(pairs.values())
        names = (*left.names, *right.names)
        kept = [place for place in range(len(names)) if place not in gone]
        merged = [
            tuple(
                row[pairs[place]] if place in pairs and row[place] is None else row[place]
                for place in kept
            )
            for row in rows
        ]
        return Rows(tuple(names[place] for place in kept), merged)

    # SELECT

    def _outputs(self, found: Rows) -> list[tuple[str, exp.Expression | int]]:
        """Return for each column its name, and its expression or the index of the input column."""
        outputs: list[tuple[str, exp.Expression | int]] = []
        for one in self._node.expressions:
            star = one if isinstance(one, exp.Star) else one.this
            if isinstance(star, exp.Star) and isinstance(one, exp.Star | exp.Column):
                assert not any(star.args.values()), f"{one!r}"
                qualifier = one.table.lower() if isinstance(one, exp.Column) else ""
                outputs += [
                    (name.name, place)
                    for place, name in enumerate(found.names)
                    if not name.hidden
                    and (not qualifier or (name.qualifier or "").lower() == qualifier)
                ]
            elif isinstance(one, exp.Alias):
                outputs.append((one.alias, one.this))
            else:
                outputs.append((one.name if isinstance(one, exp.Column) else one.sql(), one))
        return outputs

    def _projected(
        self, expressions: Compiler, found: Rows, rows: Iterable[Row]
    ) -> tuple[Rows, Rows]:
        """Return the output rows, and the rows from which they are computed."""
        start = len(self._outer)
        names, of = [], []
        for name, what in self._outputs(found):
            if isinstance(what, int):
                names.append(ColumnName(name, found.names[what].type))
                of.append(value_at(start + what))
            else:
                typed = expressions.typed(what)
                names.append(ColumnName(name, typed.type))
                of.append(typed.of)
        inputs = list(rows)
        made = [tuple(one((*self._outer, *row)) for one in of) for row in inputs]
        return Rows(tuple(names), made), Rows(found.names, inputs)

    # GROUP BY

    def _is_grouped(self) -> bool:
        node = self._node
        return bool(
            node.args.get("group")
            or node.args.get("having")
            or any(aggregates_in(one) for one in node.expressions)
        )

    def _grouped(self, found: Rows) -> tuple[Rows, Rows | None]:
        node = self._node
        expressions = self._compiler(found)
        keys = [self._group(one, found) for one in group_keys(node)]
        key_values = [expressions.typed(key) for key in keys]
        having, order = node.args.get("having"), node.args.get("order")
        places = [*node.expressions, *([having] if having else []), *([order] if order else [])]
        wanted = list(dict.fromkeys(call for one in places for call in aggregates_in(one)))
        calls = [Aggregated(expressions, call) for call in wanted]
        groups: dict[Row, tuple[Row, list[Row]]] = {}
        for row in found.rows:
            full = (*self._outer, *row)
            key = tuple(one.of(full) for one in key_values)
            groups.setdefault(tuple(map(to_hashable, key)), (key, []))[1].append(full)
        if not keys and not groups:
            groups[()] = ((), [])
        of_calls = [one.type for one in calls]
        names = tuple(
            ColumnName(f"__g{place}", kind, hidden=True)
            for place, kind in enumerate([one.type for one in key_values] + of_calls)
        )
        rows = [(*key, *(call.of(members) for call in calls)) for key, members in groups.values()]
        start = len(self._outer)
        known = {
            one: TypedExpression(name.type, value_at(start + place))
            for place, (one, name) in enumerate(zip([*keys, *wanted], names, strict=True))
        }
        for place, group in enumerate(keys):
            if isinstance(group, exp.Column):  # also with another qualifier
                for column in node.find_all(exp.Column):
                    if self._same_column(column, group, found):
                        known[column] = TypedExpression(names[place].type, value_at(start + place))
        grouped = Rows(names, rows)
        after = self._compiler(grouped, known)
        if having is not None:
            is_match = after.condition(having.this)
            grouped = Rows(names, [r for r in rows if is_match((*self._outer, *r))])
        made, inputs = self._projected(after, grouped, grouped.rows)
        return with_order_keys(node, after, made, inputs, self._outer)

    def _group(self, node: exp.Expression, found: Rows) -> exp.Expression:
        """Return the expression that GROUP BY names by index, by alias, or directly."""
        if isinstance(node, exp.Literal) and not node.is_string:
            made = self._node.expressions[int(node.name) - 1]
            return made.this if isinstance(made, exp.Alias) else made
        if not isinstance(node, exp.Column) or node.table:
            return node
        name = node.name.lower()
        if any(one.name.lower() == name for one in found.names):
            return node
        outputs = {one.alias.lower(): one.this for one in self._node.expressions if one.alias}
        return outputs.get(name, node)

    def _same_column(self, one: exp.Column, other: exp.Column, found: Rows) -> bool:
        scope = Scope(found.names, self._scope)
        try:
            return scope.find([p.name for p in one.parts]) == scope.find(
                [p.name for p in other.parts]
            )
        except InvalidRequest:
            return False


def _aliased(found: Rows, alias: exp.Expression) -> Rows:
    """Return the rows under an alias, `v` or `v(a, b)`."""
    columns = [one.name for one in alias.args.get("columns") or []]
    names = [one.name for one in found.names]
    if columns:
        assert len(columns) == len(names), f"{alias!r}"
        names = columns
    made = (
        ColumnName(name, one.type, alias.name, one.hidden)
        for name, one in zip(names, found.names, strict=True)
    )
    return Rows(tuple(made), found.rows)


def _cells(row: exp.Expression) -> list[exp.Expression]:
    return list(row.expressions) if isinstance(row, exp.Tuple) else [row]
