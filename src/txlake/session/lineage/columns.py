"""Which columns of tables the columns of a query are made of, read from its text.

A query of which anything isn't certain has no answer: names are resolved as Spark does, and a
construct that isn't known here, or that two grammars read differently, raises Unsure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlglot import exp
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import ErrorLevel

from txlake.sql.dialect import DIALECT, PARSER_FAILURES, TxlakeSql
from txlake.sql.tokens import words

_RANKS = {"IDENTITY": 0, "TRANSFORMATION": 1, "": 2, "AGGREGATION": 3}
_QUERY_PARTS = words("with_ with distinct order sort distribute cluster limit offset")
_SELECT_PARTS = _QUERY_PARTS | words(
    "expressions hint from_ from joins where group having qualify windows"
)
_UNION_PARTS = _QUERY_PARTS | {"this", "expression"}
_SUBQUERY_PARTS = _UNION_PARTS - {"expression"} | {"alias"}
_JOIN_PARTS = frozenset({"this", "side", "kind", "on", "using"})
_UNKNOWN = (
    *(exp.Lambda, exp.Star, exp.UDTF, exp.Aliases, exp.WithinGroup, exp.Columns, exp.Placeholder),
    *(exp.Explode, exp.Posexplode, exp.Inline, exp.Lateral, exp.Parameter, exp.SessionParameter),
)
_ROW_PICKS = (exp.Lag, exp.Lead, exp.NthValue)
# Of functions that make several rows or columns, and one that makes names.
_UNKNOWN_NAMES = words(
    "identifier explode explode_outer posexplode posexplode_outer inline inline_outer stack "
    "json_tuple variant_explode variant_explode_outer"
)


class Unsure(Exception):
    """What the columns are made of isn't certain."""


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A column of a dataset, and how it goes into another one.

    Attributes:
        kind: DIRECT or INDIRECT.
        subtype: OpenLineage's; empty for a function that may be an aggregate or not.
    """

    namespace: str
    dataset: str
    column: str
    kind: str = "DIRECT"
    subtype: str = "IDENTITY"

    def through(self, subtype: str) -> Origin:
        """Return the origin of what is made of it; the one that tells most of the two counts."""
        if self.kind == "INDIRECT" or _RANKS[subtype] <= _RANKS[self.subtype]:
            return self
        return Origin(self.namespace, self.dataset, self.column, self.kind, subtype)

    def indirect(self, subtype: str) -> Origin:
        """Return the origin of what only depends on it."""
        return Origin(self.namespace, self.dataset, self.column, "INDIRECT", subtype)


Origins = frozenset[Origin]
NONE: Origins = frozenset()


@dataclass(frozen=True, slots=True)
class Relation:
    """The rows of a table or query.

    Attributes:
        columns: each column's name in lower case, None for one without, and its origins.
        whole: what decides which rows there are; None if that isn't certain.
    """

    columns: tuple[tuple[str | None, Origins], ...]
    whole: Origins | None = NONE

    def named(self, names: Sequence[str]) -> Relation:
        """Return the rows under other names. Raises Unsure for another number of them."""
        if len(names) != len(self.columns):
            raise Unsure
        pairs = zip(names, self.columns, strict=True)
        return Relation(tuple((name.lower(), origins) for name, (_, origins) in pairs), self.whole)


@dataclass(frozen=True, slots=True)
class BaseTable:
    """A table as a dataset, and its columns."""

    namespace: str
    dataset: str
    columns: tuple[str, ...]

    def relation(self) -> Relation:
        """Return the table's rows."""
        return Relation(
            tuple(
                (name.lower(), frozenset({Origin(self.namespace, self.dataset, name)}))
                for name in self.columns
            )
        )


@dataclass(frozen=True, slots=True)
class Text:
    """A query or an expression, whose tables have names of their own.

    Attributes:
        sources: by these names, the tables and the queries of views.
        names: of a view with names of its own, those.
        expected: of a view, the names that its query has to give.
    """

    text: str
    sources: Mapping[str, BaseTable | Text] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    def relation(self) -> Relation:
        """Return the rows of a query. Raises Unsure."""
        made = _Reader(self.sources).query(_tree(self.text), None, {})
        if self.expected and [name for name, _ in made.columns] != [
            name.lower() for name in self.expected
        ]:
            raise Unsure
        return made.named(self.names) if self.names else made

    def origins(self, scope: Scope) -> Origins:
        """Return what an expression is made of, where the scope's columns are. Raises Unsure."""
        tree = _tree(f"SELECT (\n{self.text}\n)")
        if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
            raise Unsure
        return _Reader(self.sources).value(tree.expressions[0], scope)


class _Grammar(TxlakeSql):
    """txlake's dialect with what Databricks' knows of functions."""

    class Parser(TxlakeSql.Parser):
        """The parser that tells aggregates from others."""

        FUNCTIONS = Databricks.Parser.FUNCTIONS


_GRAMMAR = _Grammar()


def _tree(text: str) -> exp.Expr:
    """Return a query's tree. Raises Unsure unless both grammars find the same columns."""
    trees: list[exp.Expr] = []
    for dialect in (DIALECT, _GRAMMAR):
        try:
            parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
            [tree] = parser.parse(dialect.tokenize(text), text)
        except PARSER_FAILURES as error:
            raise Unsure from error
        if tree is None:
            raise Unsure
        trees.append(tree)
    plain, tree = trees
    if _column_names(plain) != _column_names(tree):
        raise Unsure
    return tree


def _column_names(tree: exp.Expr) -> set[tuple[str, ...]]:
    return {_parts(column) for column in tree.find_all(exp.Column)}


def _parts(column: exp.Column) -> tuple[str, ...]:
    return tuple(part.name.lower() for part in column.parts)


@dataclass(slots=True)
class Scope:
    """The columns that an expression can name.

    Attributes:
        sources: the relations of a FROM clause, by name.
        merged: the columns of USING.
        aliases: the columns of the select list so far; None for a name that two have.
        ctes: the common table expressions that a subquery can name.
    """

    parent: Scope | None = None
    sources: list[tuple[str | None, Relation]] = field(default_factory=list)
    merged: dict[str, Origins] = field(default_factory=dict)
    aliases: dict[str, Origins | None] = field(default_factory=dict)
    ctes: Mapping[str, Relation] = field(default_factory=dict)

    def origins(self, parts: Sequence[str]) -> Origins:
        """Return what a column is made of, by the parts of its name. Raises Unsure."""
        found = self.own(parts)
        if found is None and self.parent is not None:
            return self.parent.origins(parts)
        if found is None:
            raise Unsure
        return found

    def own(self, parts: Sequence[str]) -> Origins | None:
        """Return the same without the scopes around; None if there is no such column."""
        first, rest = parts[0], len(parts) - 1
        if rest:
            owners = [relation for name, relation in self.sources if name == first]
            if len(owners) > 1:
                raise Unsure
            found = [one for owner in owners for one in _columns_named(owner, parts[1])]
            if found:
                return _field(found, rest - 1)
        if first in self.merged:
            return _field([self.merged[first]], rest)
        found = [one for _, owner in self.sources for one in _columns_named(owner, first)]
        if found:
            return _field(found, rest)
        if first in self.aliases:
            alias = self.aliases[first]
            return _field([] if alias is None else [alias], rest)
        if any(name is None for _, owner in self.sources for name, _ in owner.columns):
            raise Unsure  # Spark gives that column a name
        return None

    def star(self) -> Iterator[tuple[str | None, Origins]]:
        """Yield the columns of `*`."""
        yield from self.merged.items()
        for _, relation in self.sources:
            yield from (one for one in relation.columns if one[0] not in self.merged)


def _columns_named(relation: Relation, name: str) -> list[Origins]:
    return [origins for other, origins in relation.columns if other == name]


def _field(found: Sequence[Origins], depth: int) -> Origins:
    """Return the one column found, or what is made of it for a field of it."""
    if len(found) != 1:
        raise Unsure
    return through(found[0], "TRANSFORMATION") if depth else found[0]


def through(origins: Iterable[Origin], subtype: str) -> Origins:
    """Return the origins of what is made of some."""
    return frozenset(one.through(subtype) for one in origins)


def indirect(origins: Iterable[Origin], subtype: str) -> Origins:
    """Return the origins of what only depends on some."""
    return frozenset(one.indirect(subtype) for one in origins)


def _require_parts(node: exp.Expr, allowed: frozenset[str]) -> None:
    """Raise Unsure if a node has a clause that isn't one of these."""
    if any(value for key, value in node.args.items() if key not in allowed):
        raise Unsure


def _part(node: exp.Expr, name: str) -> exp.Expr | None:
    """Return a clause, which newer releases of sqlglot name with an underscore if it's a keyword of
    Python's.
    """
    found = node.args.get(f"{name}_") or node.args.get(name)
    return found if isinstance(found, exp.Expr) else None


Ctes = Mapping[str, Relation]


class _Reader:
    """Reads a tree whose tables are known."""

    def __init__(self, sources: Mapping[str, BaseTable | Text]) -> None:
        self._sources = sources

    # Queries

    def query(self, node: exp.Expr, outer: Scope | None, ctes: Ctes) -> Relation:
        """Return the rows of a query in a scope."""
        clause = _part(node, "with")
        if clause is not None:
            ctes = self._with(clause, outer, ctes)
        if isinstance(node, exp.Select):
            return self._select(node, outer, ctes)
        if isinstance(node, exp.Subquery):
            _require_parts(node, _SUBQUERY_PARTS)
            return _sorted(node, self.query(node.this, outer, ctes))
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, outer, ctes)
        if isinstance(node, exp.Values):
            return self._values(node, outer)
        raise Unsure

    def _with(self, clause: exp.Expr, outer: Scope | None, ctes: Ctes) -> Ctes:
        if clause.args.get("recursive"):
            raise Unsure
        for cte in clause.expressions:
            made = _aliased(self.query(cte.this, outer, ctes), cte)
            ctes = {**ctes, cte.alias.lower(): made}
        return ctes

    def _set_operation(self, node: exp.Expr, outer: Scope | None, ctes: Ctes) -> Relation:
        _require_parts(node, _UNION_PARTS)
        left = self.query(node.this, outer, ctes)
        right = self.query(node.args["expression"], outer, ctes)
        if len(left.columns) != len(right.columns):
            raise Unsure
        if not isinstance(node, exp.Union):  # the right side only takes rows away
            return Relation(left.columns, None)
        pairs = zip(left.columns, right.columns, strict=True)
        columns = tuple((name, one | other) for (name, one), (_, other) in pairs)
        return _sorted(node, Relation(columns, _both(left.whole, right.whole)))

    def _values(self, node: exp.Expr, outer: Scope | None) -> Relation:
        rows = [
            row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions
        ]
        if len({len(row) for row in rows}) != 1:
            raise Unsure
        scope = Scope(outer)
        columns = [
            frozenset().union(*(self.value(cell, scope) for cell in column))
            for column in zip(*rows, strict=True)
        ]
        return Relation(tuple((f"col{place}", one) for place, one in enumerate(columns, 1)))

    def _select(self, node: exp.Select, outer: Scope | None, ctes: Ctes) -> Relation:
        _require_parts(node, _SELECT_PARTS)
        scope = Scope(outer, ctes=ctes)
        whole: list[Origins | None] = []
        clause = _part(node, "from")
        if clause is not None:
            whole.append(self._add_source(clause.this, scope, ctes))
        for join in node.args.get("joins") or ():
            whole.append(self._join(join, scope, ctes))
        where = _part(node, "where")
        if where is not None:
            whole.append(self._clause(lambda: self.value(where.this, scope), "FILTER"))
        columns: list[tuple[str | None, Origins]] = []
        for item in node.expressions:
            for name, origins in self._projected(item, scope):
                columns.append((name, origins))
                if name is not None:
                    taken = name in scope.aliases
                    scope.aliases[name] = None if taken else origins
        group = _part(node, "group")
        if group is not None:
            whole.append(self._clause(lambda: self._grouped(group, scope, columns), "GROUP_BY"))
        for key in ("having", "qualify"):
            condition = _part(node, key)
            if condition is not None:
                whole.append(self._clause(partial(self._late, condition.this, scope), "FILTER"))
        order = _part(node, "order")
        if order is not None:
            whole.append(self._clause(lambda: self._ordered(order, scope, columns), "SORT"))
        return Relation(tuple(columns), _both(*whole))

    def _clause(self, origins: Callable[[], Origins], subtype: str) -> Origins | None:
        """Return what a clause reads; None if that isn't certain."""
        try:
            return indirect(origins(), subtype)
        except Unsure:
            return None

    def _late(self, node: exp.Expr, scope: Scope) -> Origins:
        """Return what an expression after the select list reads. Raises Unsure where a name means
        one thing in the list and another in the tables.
        """
        names = [_parts(column) for column in node.find_all(exp.Column)]
        aliases, scope.aliases = scope.aliases, {}
        try:
            for parts in names:
                if parts[0] in aliases:
                    own = scope.own(parts)
                    if own is not None and own != aliases[parts[0]]:
                        raise Unsure
        finally:
            scope.aliases = aliases
        return self.value(node, scope)

    def _grouped(
        self, group: exp.Expr, scope: Scope, columns: Sequence[tuple[str | None, Origins]]
    ) -> Origins:
        _require_parts(group, frozenset({"expressions"}))
        return frozenset().union(
            *(self._item(one, scope, columns, late=False) for one in group.expressions)
        )

    def _ordered(
        self, order: exp.Expr, scope: Scope, columns: Sequence[tuple[str | None, Origins]]
    ) -> Origins:
        return frozenset().union(
            *(self._item(one.this, scope, columns, late=True) for one in order.expressions)
        )

    def _item(
        self,
        node: exp.Expr,
        scope: Scope,
        columns: Sequence[tuple[str | None, Origins]],
        *,
        late: bool,
    ) -> Origins:
        """Return what an item of GROUP BY or ORDER BY reads: a number means a column."""
        if isinstance(node, exp.Literal) and node.is_int:
            place = int(node.this)
            if not 0 < place <= len(columns):
                raise Unsure
            return columns[place - 1][1]
        return self._late(node, scope) if late else self.value(node, scope)

    # Relations

    def _add_source(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> Origins | None:
        """Add what FROM names to the scope; return what decides its rows."""
        name, relation = self._source(node, scope, ctes)
        scope.sources.append((name, relation))
        return relation.whole

    def _source(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> tuple[str | None, Relation]:
        alias = node.alias.lower() or None
        if isinstance(node, exp.Table):
            _require_parts(node, frozenset({"this", "alias"}))
            if not isinstance(node.this, exp.Identifier):
                raise Unsure  # a function
            name = node.name.lower()
            relation = ctes.get(name)
            if relation is None:
                if name not in self._sources:
                    raise Unsure
                relation = self._sources[name].relation()
            return alias or name, _aliased(relation, node)
        if isinstance(node, exp.Values):
            _require_parts(node, frozenset({"expressions", "alias"}))
        elif not isinstance(node, exp.Subquery):
            raise Unsure
        return alias, _aliased(self.query(node, scope.parent, ctes), node)

    def _join(self, join: exp.Expr, scope: Scope, ctes: Ctes) -> Origins | None:
        """Add what JOIN names to the scope; return what decides the rows."""
        _require_parts(join, _JOIN_PARTS)
        name, relation = self._source(join.this, scope, ctes)
        side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
        whole = [relation.whole]
        sources = [*scope.sources, (name, relation)]
        both = Scope(scope.parent, sources, dict(scope.merged), ctes=ctes)
        on = _part(join, "on")
        if on is not None:
            whole.append(self._clause(lambda: self.value(on, both), "JOIN"))
        merged: dict[str, Origins] = {}
        for identifier in join.args.get("using") or ():
            column = identifier.name.lower()
            left = scope.own([column])
            right = Scope(None, [(name, relation)]).own([column])
            if left is None or right is None:
                raise Unsure
            merged[column] = left
            if side == "RIGHT":
                merged[column] = right
            elif side == "FULL":
                merged[column] = through(left | right, "TRANSFORMATION")
            whole.append(indirect(left | right, "JOIN"))
        if kind not in {"SEMI", "ANTI"}:
            scope.sources = sources
        elif side not in {"", "LEFT"}:
            raise Unsure
        rest = {name: one for name, one in scope.merged.items() if name not in merged}
        scope.merged = {**merged, **rest}
        return _both(*whole)

    # Expressions

    def _projected(self, item: exp.Expr, scope: Scope) -> Iterator[tuple[str | None, Origins]]:
        """Yield the columns of an item of the select list."""
        if isinstance(item, exp.Star):
            _require_parts(item, frozenset())
            yield from scope.star()
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            _require_parts(item.this, frozenset())
            owner = [relation for name, relation in scope.sources if name == item.table.lower()]
            if len(owner) != 1 or len(item.parts) != 2:
                raise Unsure  # or the fields of a struct
            yield from owner[0].columns
        else:
            yield _name_of(item), self.value(item, scope)

    def value(self, node: exp.Expr, scope: Scope) -> Origins:
        """Return what an expression is made of. Raises Unsure."""
        if isinstance(node, (exp.Paren, exp.Alias)):
            return self.value(node.this, scope)
        if isinstance(node, exp.Column):
            return scope.origins(_parts(node))
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return NONE
        if isinstance(node, exp.Exists):
            return self._certain(self._nested(node.this, scope))
        if isinstance(node, exp.Query):
            return self._scalar(node, scope)
        if isinstance(node, (exp.Case, exp.If)):
            return self._conditional(node, scope)
        if isinstance(node, exp.Window):
            return self._window(node, scope)
        if isinstance(node, exp.Filter):
            condition = indirect(self.value(node.args["expression"].this, scope), "FILTER")
            return self.value(node.this, scope) | condition
        if _is_unknown(node):
            raise Unsure
        return self._made(node, scope)

    def _made(self, node: exp.Expr, scope: Scope) -> Origins:
        """Return what a function or an operator is made of."""
        children = list(node.iter_expressions())
        if isinstance(node, exp.Func) and not children:
            # A column may have the name of a function that is written without parentheses.
            name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
            place: Scope | None = scope
            while place is not None:
                if place.own([name.lower()]) is not None:
                    raise Unsure
                place = place.parent
        subtype = "TRANSFORMATION"
        if isinstance(node, exp.AggFunc) and not isinstance(node, _ROW_PICKS):
            subtype = "AGGREGATION"
        elif isinstance(node, exp.Anonymous):
            subtype = ""
        inner = frozenset().union(*(self.value(child, scope) for child in children))
        return through(inner, subtype)

    def _conditional(self, node: exp.Expr, scope: Scope) -> Origins:
        """Return what a CASE or an IF is made of: its values, and conditions that choose them."""
        branches = node.args["ifs"] if isinstance(node, exp.Case) else [node]
        last = node.args.get("default") or node.args.get("false")
        chosen = [branch.args["true"] for branch in branches] + ([last] if last else [])
        asked = [branch.this for branch in branches]
        if isinstance(node, exp.Case) and node.this is not None:
            asked.append(node.this)
        values = frozenset().union(*(self.value(one, scope) for one in chosen))
        conditions = frozenset().union(*(self.value(one, scope) for one in asked))
        return through(values, "TRANSFORMATION") | indirect(conditions, "CONDITIONAL")

    def _window(self, node: exp.Expr, scope: Scope) -> Origins:
        """Return what a function over a window is made of."""
        if node.args.get("alias"):
            raise Unsure  # defined in the clause WINDOW
        order = node.args.get("order")
        by = [*(node.args.get("partition_by") or ()), *([] if order is None else order.expressions)]
        rows = frozenset().union(*(self.value(one, scope) for one in by))
        made = through(self.value(node.this, scope), "TRANSFORMATION")
        return made | indirect(rows, "WINDOW")

    def _nested(self, node: exp.Expr, scope: Scope) -> Relation:
        if not isinstance(node, exp.Query):
            raise Unsure
        return self.query(node, scope, scope.ctes)

    def _scalar(self, node: exp.Expr, scope: Scope) -> Origins:
        nested = self._nested(node, scope)
        if len(nested.columns) != 1:
            raise Unsure
        return through(nested.columns[0][1], "TRANSFORMATION") | self._certain(nested)

    def _certain(self, relation: Relation) -> Origins:
        if relation.whole is None:
            raise Unsure
        return relation.whole


def _aliased(relation: Relation, node: exp.Expr) -> Relation:
    """Return the rows with the names of an alias's columns, if it has some."""
    alias = node.args.get("alias")
    names = alias.columns if isinstance(alias, exp.TableAlias) else ()
    return relation.named([one.name for one in names]) if names else relation


def _sorted(node: exp.Expr, relation: Relation) -> Relation:
    """Return the rows of a union or of parentheses: what sorts them is left out."""
    return Relation(relation.columns, None) if _part(node, "order") else relation


def _both(*wholes: Origins | None) -> Origins | None:
    """Return the union; None if any isn't certain."""
    found = [one for one in wholes if one is not None]
    return frozenset().union(*found) if len(found) == len(wholes) else None


def _name_of(item: exp.Expr) -> str | None:
    """Return the name of a column of the select list in lower case; None where Spark makes one."""
    while isinstance(item, exp.Paren):
        item = item.this
    if isinstance(item, exp.Alias):
        return item.alias.lower()
    if isinstance(item, exp.Column):
        return item.name.lower()
    root = item
    while isinstance(root, exp.Dot):
        root = root.this
    if isinstance(item, exp.Dot) and isinstance(root, exp.Column):
        return str(item.args["expression"].name).lower()
    return None


def _is_unknown(node: exp.Expr) -> bool:
    """Return whether what an expression is made of isn't known."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return isinstance(node, _UNKNOWN) or name in _UNKNOWN_NAMES
