"""Queries over rows: FROM, joins, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, set operations, WITH.

Owns the order of these steps and what names mean in each. A query is run as it is read: there are
few rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from tests.simulation.rows import functions, values
from tests.simulation.rows.expressions import Compiler, Subquery, parsed
from tests.simulation.rows.scopes import Name, Row, Rows, Scope, Typed
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
        return parse_one(text, dialect=DIALECT)
    except SqlglotError as error:
        raise InvalidRequest(f"not a query: {text!r}: {error}") from error


def run(text: str, tables: Tables) -> Rows:
    """The rows of a query over these tables, by the names that the text has for them."""
    return _Query(tables).rows(_tree(text), _NOTHING, ())


def compiler(scope: Scope, tables: Tables) -> Compiler:
    """The compiler of expressions in which queries may stand."""
    return Compiler(scope, _Query(tables).inner)


def expression(text: str, scope: Scope, tables: Tables) -> Typed:
    """The expression of a text."""
    return compiler(scope, tables).typed(parsed(text))


def condition(text: str, scope: Scope, tables: Tables) -> Callable[[Row], bool]:
    """The condition of a text: whether it is true of a row."""
    return compiler(scope, tables).condition(parsed(text))


class _Query:
    """Runs one query after the other over the same tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = {name.lower(): rows for name, rows in tables.items()}

    def inner(self, node: exp.Expression, scope: Scope) -> tuple[tuple[DataType, ...], Subquery]:
        """A query inside of an expression: its columns' types, and its rows for a row outside."""
        names = self.rows(node, scope, (None,) * scope.end).names
        before: dict[Row, Rows] = {}

        def rows(outer: Row) -> Rows:
            key = tuple(map(repr, outer))
            if key not in before:
                before[key] = self.rows(node, scope, outer)
            return before[key]

        return tuple(one.type for one in names), rows

    def rows(self, node: exp.Expression, scope: Scope, outer: Row) -> Rows:
        """The query's rows, where it stands inside a row of the scope."""
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
        """What a name or a query in FROM gives, under the name that it has there."""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            return self._range(node, scope, outer)
        if isinstance(node, exp.Table):
            known = self._tables.get(node.name.lower())
            assert known is not None, f"there is no table {node.sql()}"
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
        found = Rows((Name("id", LONG),), [(number,) for number in range(*bounds)])
        return found if alias is None else _aliased(found, alias)

    def _values(self, node: exp.Values, scope: Scope, outer: Row) -> Rows:
        expressions = compiler(scope, self._tables)
        cells = [[expressions.typed(cell) for cell in _cells(one)] for one in node.expressions]
        kinds = [functions.widest(one.type for one in column) for column in zip(*cells)]
        rows = [
            tuple(
                functions.converted(cell, kind).of(outer)
                for cell, kind in zip(row, kinds, strict=True)
            )
            for row in cells
        ]
        names = tuple(Name(f"col{place + 1}", kind) for place, kind in enumerate(kinds))
        return Rows(names, rows)

    def _combined(self, node: exp.SetOperation, scope: Scope, outer: Row) -> Rows:
        left = self.rows(node.this, scope, outer)
        right = self.rows(node.expression, scope, outer)
        if len(left.names) != len(right.names):
            raise InvalidRequest("NUM_COLUMNS_MISMATCH: both queries need as many columns")
        kinds = [
            values.common(one.type, other.type)
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
        names = tuple(Name(one.name, kind) for one, kind in zip(left.names, kinds, strict=True))
        made = Rows(names, _distinct(rows) if node.args.get("distinct") else rows)
        return _limited(self, node, _ordered(self, node, made, None, scope, outer), scope, outer)


class _Select:
    """One SELECT, inside one row of the scope around it."""

    def __init__(self, query: _Query, node: exp.Select, scope: Scope, outer: Row) -> None:
        for clause in _UNKNOWN_CLAUSES:
            assert not node.args.get(clause), f"{clause} isn't known here: {node!r}"
        self._query, self._node, self._scope, self._outer = query, node, scope, outer

    def rows(self) -> Rows:
        """The rows that it gives."""
        node = self._node
        found = self._from()
        where = node.args.get("where")
        if where is not None:
            holds = self._compiler(found).condition(where.this)
            found = Rows(found.names, [r for r in found.rows if holds((*self._outer, *r))])
        if self._is_grouped():
            made, inputs = self._grouped(found)
        else:
            made, inputs = self._projected(self._compiler(found), found, found.rows)
        if node.args.get("distinct"):
            made, inputs = Rows(made.names, _distinct(made.rows)), None
        ordered = _ordered(self._query, node, made, inputs, self._scope, self._outer)
        return _limited(self._query, node, ordered, self._scope, self._outer)

    def _compiler(
        self, found: Rows, known: Mapping[exp.Expression, Typed] | None = None
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

            holds: Callable[[Row], bool] = matches
        elif join.args.get("on") is None:
            holds = _always
        else:
            holds = self._compiler(both).condition(join.args["on"])
        side, kind = join.side.upper(), join.kind.upper()
        if kind in {"SEMI", "ANTI"}:
            wanted = kind == "SEMI"
            rows = [
                one
                for one in left.rows
                if any(holds((*self._outer, *one, *other)) for other in right.rows) == wanted
            ]
            return Rows(left.names, rows)
        rows = []
        met: set[int] = set()
        for one in left.rows:
            found = False
            for place, other in enumerate(right.rows):
                if holds((*self._outer, *one, *other)):
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
        """JOIN USING: one column for two, where either side has it."""
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
        """Each column: its name, and its expression or the place of the input that it is."""
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
        """The columns made of each row, and the rows that they were made of."""
        start = len(self._outer)
        names, of = [], []
        for name, what in self._outputs(found):
            if isinstance(what, int):
                names.append(Name(name, found.names[what].type))
                of.append(_taken(start + what))
            else:
                typed = expressions.typed(what)
                names.append(Name(name, typed.type))
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
            or any(_aggregates_in(one) for one in node.expressions)
        )

    def _grouped(self, found: Rows) -> tuple[Rows, Rows | None]:
        node = self._node
        expressions = self._compiler(found)
        keys = [self._group(one, found) for one in _group_keys(node)]
        key_values = [expressions.typed(key) for key in keys]
        having, order = node.args.get("having"), node.args.get("order")
        places = [*node.expressions, *([having] if having else []), *([order] if order else [])]
        wanted = list(dict.fromkeys(call for one in places for call in _aggregates_in(one)))
        calls = [_Aggregated(expressions, call) for call in wanted]
        groups: dict[Row, tuple[Row, list[Row]]] = {}
        for row in found.rows:
            full = (*self._outer, *row)
            key = tuple(one.of(full) for one in key_values)
            groups.setdefault(tuple(map(_hashed, key)), (key, []))[1].append(full)
        if not keys and not groups:
            groups[()] = ((), [])
        names = tuple(
            Name(f"__g{place}", one.type, hidden=True)
            for place, one in enumerate([*key_values, *calls])
        )
        rows = [(*key, *(call.of(members) for call in calls)) for key, members in groups.values()]
        start = len(self._outer)
        known = {
            one: Typed(name.type, _taken(start + place))
            for place, (one, name) in enumerate(zip([*keys, *wanted], names, strict=True))
        }
        for place, key in enumerate(keys):
            if isinstance(key, exp.Column):  # however it is qualified elsewhere
                for column in node.find_all(exp.Column):
                    if self._same_column(column, key, found):
                        known[column] = Typed(names[place].type, _taken(start + place))
        grouped = Rows(names, rows)
        after = self._compiler(grouped, known)
        if having is not None:
            holds = after.condition(having.this)
            grouped = Rows(names, [r for r in rows if holds((*self._outer, *r))])
        made, inputs = self._projected(after, grouped, grouped.rows)
        return _with_order_keys(node, after, made, inputs, self._outer)

    def _group(self, node: exp.Expression, found: Rows) -> exp.Expression:
        """The expression that GROUP BY names: by its place, by its alias, or itself."""
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


class _Aggregated:
    """One aggregate: what it makes of a group's rows."""

    def __init__(self, expressions: Compiler, call: exp.Expression) -> None:
        self._keep: Callable[[Row], bool] = _always
        if isinstance(call, exp.Filter):
            self._keep = expressions.condition(call.expression.this)
            call = call.this
        name = str(call.this).lower()
        [argument] = call.expressions or [exp.Star()]
        self._distinct = isinstance(argument, exp.Distinct)
        if isinstance(argument, exp.Distinct):
            [argument] = argument.expressions
        if isinstance(argument, exp.Star):
            value = Typed(values.INTEGER, lambda _: 1)
        else:
            value = expressions.typed(argument)
        self._of = value.of
        self.type, self._function = functions.aggregate(name, value.type)

    def of(self, rows: Iterable[Row]) -> Any:
        """The aggregate of these rows."""
        found = [self._of(row) for row in rows if self._keep(row)]
        known = [one for one in found if one is not None]
        return self._function(functions._distinct(known) if self._distinct else known)


def _aggregates_in(node: exp.Expression) -> list[exp.Expression]:
    """The aggregates of an expression, not those of queries inside of it."""
    if isinstance(node, exp.Query):
        return []
    if isinstance(node, exp.Filter):
        return [node]
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in functions.AGGREGATES:
        return [node]
    return [call for inner in node.iter_expressions() for call in _aggregates_in(inner)]


def _group_keys(node: exp.Select) -> list[exp.Expression]:
    group = node.args.get("group")
    if group is None:
        return []
    others = {name: value for name, value in group.args.items() if name != "expressions"}
    assert not any(others.values()), f"{group!r}"
    return list(group.expressions)


# ORDER BY and LIMIT


def _with_order_keys(
    node: exp.Select, after: Compiler, made: Rows, inputs: Rows, outer: Row
) -> tuple[Rows, Rows | None]:
    """The groups with what ORDER BY computes of them, by which `_ordered` finds it."""
    order = node.args.get("order")
    if order is None:
        return made, inputs
    names = [name.name.lower() for name in made.names]
    columns = []
    for one in order.expressions:
        key = one.this
        if isinstance(key, exp.Literal) or (
            isinstance(key, exp.Column) and key.name.lower() in names
        ):
            continue
        columns.append((key, after.typed(key)))
    extra = tuple(Name(key.sql(), typed.type, hidden=True) for key, typed in columns)
    rows = [tuple(typed.of((*outer, *row)) for _, typed in columns) for row in inputs.rows]
    return made, Rows(extra, rows)


def _ordered(
    query: _Query, node: exp.Expression, made: Rows, inputs: Rows | None, scope: Scope, outer: Row
) -> Rows:
    order = node.args.get("order")
    if order is None:
        return made
    before = inputs or Rows((), [()] * len(made.rows))
    seen = [one.name.lower() for one in made.names]
    behind = list(before.names)
    names = (
        *made.names,
        *(Name(n.name, n.type, n.qualifier, hidden=n.name.lower() in seen) for n in behind),
    )
    known = {}
    start = len(outer) + len(made.names)
    for place, name in enumerate(before.names):
        if name.hidden:
            for one in order.expressions:
                if one.this.sql() == name.name:
                    known[one.this] = Typed(name.type, _taken(start + place))
    visible = Scope(tuple(n for n in made.names), scope)
    whole = Scope(names, scope)
    rows = [(a, (*outer, *a, *b)) for a, b in zip(made.rows, before.rows, strict=True)]
    for one in reversed(order.expressions):
        key = one.this
        if isinstance(key, exp.Literal) and not key.is_string:
            of = _taken(len(outer) + int(key.name) - 1)
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in seen:
            of = Compiler(visible, query.inner).typed(key).of
        else:
            of = Compiler(whole, query.inner, known).typed(key).of
        descending = bool(one.args.get("desc"))
        nulls_first = bool(one.args.get("nulls_first"))
        rows.sort(key=lambda row: _key(of(row[1])), reverse=descending)
        rows.sort(key=lambda row: (of(row[1]) is None) != nulls_first)
    return Rows(made.names, [row for row, _ in rows])


def _key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, list):
        return (1, [_key(one) for one in value])
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def _limited(query: _Query, node: exp.Expression, made: Rows, scope: Scope, outer: Row) -> Rows:
    limit, offset = node.args.get("limit"), node.args.get("offset")
    expressions = Compiler(scope, query.inner)
    first = 0 if offset is None else expressions.typed(offset.expression).of(outer)
    last = None if limit is None else first + expressions.typed(limit.expression).of(outer)
    return made if limit is None and offset is None else Rows(made.names, made.rows[first:last])


# Small things


def _aliased(found: Rows, alias: exp.Expression) -> Rows:
    """The rows under an alias, `v` or `v(a, b)`."""
    columns = [one.name for one in alias.args.get("columns") or []]
    names = [one.name for one in found.names]
    if columns:
        assert len(columns) == len(names), f"{alias!r}"
        names = columns
    made = (
        Name(name, one.type, alias.name, one.hidden)
        for name, one in zip(names, found.names, strict=True)
    )
    return Rows(tuple(made), found.rows)


def _cells(row: exp.Expression) -> list[exp.Expression]:
    return list(row.expressions) if isinstance(row, exp.Tuple) else [row]


def _taken(place: int) -> Callable[[Row], Any]:
    return lambda row: row[place]


def _always(_: Row) -> bool:
    return True


def _hashed(value: Any) -> Any:
    return ("list", *map(_hashed, value)) if isinstance(value, list) else value


def _distinct(rows: Sequence[Row]) -> list[Row]:
    found = {tuple(map(_hashed, row)): row for row in reversed(rows)}
    return list(reversed(found.values()))
