"""The grammar of UPDATE, DELETE, MERGE and TRUNCATE."""

from __future__ import annotations

from txlake.sql.clauses import (
    alias,
    assignments,
    check_assigned_once,
    expression,
    scope_of,
    value,
)
from txlake.sql.cursor import Cursor
from txlake.sql.references import Scope, relation_query
from txlake.sql.statements import (
    STAR,
    Assignment,
    BySourceDelete,
    BySourceUpdate,
    Delete,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    MergeClause,
    NotMatchedInsert,
    Query,
    SqlText,
    Star,
    Truncate,
    Update,
)


def update(cursor: Cursor) -> Update:
    """Parse UPDATE t [[AS] alias] SET column = value, ... [WHERE condition]."""
    cursor.expect("UPDATE")
    table = cursor.table()
    alias_name = alias(cursor, ["SET"])
    scope = scope_of(table, alias_name)
    cursor.expect("SET")
    assigned = assignments(cursor, scope, ["WHERE"])
    condition = _where(cursor, scope)
    return Update(table=table, alias=alias_name, assignments=assigned, condition=condition)


def delete(cursor: Cursor) -> Delete:
    """Parse DELETE FROM t [[AS] alias] [WHERE condition]."""
    cursor.expect("DELETE", "FROM")
    table = cursor.table()
    alias_name = alias(cursor, ["WHERE"])
    condition = _where(cursor, scope_of(table, alias_name))
    return Delete(table=table, alias=alias_name, condition=condition)


def truncate(cursor: Cursor) -> Truncate:
    """Parse TRUNCATE [TABLE] t."""
    cursor.expect("TRUNCATE")
    cursor.accept("TABLE")
    table = cursor.table()
    if cursor.at("PARTITION"):
        cursor.refuse("TRUNCATE removes all rows; use DELETE FROM ... WHERE for a partition")
    cursor.expect_end()
    return Truncate(table)


def merge(cursor: Cursor) -> Merge:
    """Parse MERGE [WITH SCHEMA EVOLUTION] INTO t USING source ON condition, then WHEN clauses."""
    cursor.expect("MERGE")
    schema_evolution = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = cursor.table()
    target_alias = alias(cursor, ["USING"])
    cursor.expect("USING")
    tokens = cursor.skip(["ON", "WHEN"])
    if not tokens:
        cursor.fail("the source: a table, or a query in parentheses")
    source, source_alias = relation_query(cursor.source, tokens)
    scope = scope_of(target, target_alias)
    references = source.references
    if len(references) == 1 and references[0].alias is not None and source_alias is not None:
        scope += tuple(
            (name, source_alias)
            for name, _ in scope_of(references[0].table, None)
            if references[0].alias == name.name
        )
    cursor.expect("ON")
    condition = expression(cursor, scope, ["WHEN"], what="a condition")
    clauses: list[MergeClause] = []
    while cursor.at("WHEN"):
        clauses.append(_merge_clause(cursor, scope, clauses))
    if not clauses:
        cursor.fail("WHEN")
    cursor.expect_end()
    return Merge(
        target=target,
        target_alias=target_alias,
        source=Query(source),
        source_alias=source_alias,
        on=condition,
        clauses=tuple(clauses),
        schema_evolution=schema_evolution,
    )


_KINDS: dict[str, tuple[type[MergeClause], ...]] = {
    "MATCHED": (MatchedUpdate, MatchedDelete),
    "NOT MATCHED": (NotMatchedInsert,),
    "NOT MATCHED BY SOURCE": (BySourceUpdate, BySourceDelete),
}


def _merge_clause(cursor: Cursor, scope: Scope, earlier: list[MergeClause]) -> MergeClause:
    """Parse WHEN [NOT] MATCHED [BY { TARGET | SOURCE }] [AND condition] THEN action.

    Raises InvalidRequest if a clause of the kind without a condition is among the earlier ones.
    """
    start = cursor.token
    cursor.expect("WHEN")
    kind = "NOT MATCHED" if cursor.accept("NOT") else "MATCHED"
    cursor.expect("MATCHED")
    by = kind == "NOT MATCHED" and cursor.accept("BY")
    if by and cursor.expect_any("TARGET", "SOURCE") == "SOURCE":
        kind = "NOT MATCHED BY SOURCE"
    if any(isinstance(clause, _KINDS[kind]) and clause.condition is None for clause in earlier):
        cursor.refuse(
            f"this clause can never apply: only the last WHEN {kind} may have no condition", start
        )
    condition = None
    if cursor.accept("AND"):
        condition = expression(cursor, scope, ["THEN"], what="a condition")
    cursor.expect("THEN")
    if kind == "NOT MATCHED":
        cursor.expect("INSERT")
        return NotMatchedInsert(assignments=_insert(cursor, scope), condition=condition)
    action = cursor.expect_any("UPDATE", "DELETE")
    if kind == "MATCHED":
        if action == "DELETE":
            return MatchedDelete(condition=condition)
        cursor.expect("SET")
        if cursor.accept("*"):
            return MatchedUpdate(assignments=STAR, condition=condition)
        return MatchedUpdate(assignments=assignments(cursor, scope, ["WHEN"]), condition=condition)
    if action == "DELETE":
        return BySourceDelete(condition=condition)
    cursor.expect("SET")
    if cursor.at("*"):
        cursor.refuse("a row that no source row matches can't take its columns: name the values")
    return BySourceUpdate(assignments=assignments(cursor, scope, ["WHEN"]), condition=condition)


def _insert(cursor: Cursor, scope: Scope) -> tuple[Assignment, ...] | Star:
    """Parse `*` or (columns) VALUES (values), after WHEN NOT MATCHED ... THEN INSERT."""
    if cursor.accept("*"):
        return STAR
    if not cursor.at("("):
        cursor.fail("* or the columns in parentheses")
    assigned: set[tuple[str, ...]] = set()

    def column() -> tuple[str, ...]:
        """Parse a column, which may be a field of a struct."""
        start = cursor.token
        path = cursor.path()
        check_assigned_once(cursor, path, assigned, start)
        return path

    columns = cursor.parenthesized(column)
    cursor.expect("VALUES")
    start = cursor.token
    values = cursor.parenthesized(lambda: value(cursor, scope))
    if len(values) != len(columns):
        cursor.refuse(f"{len(columns)} columns, but {len(values)} values", start)
    return tuple(Assignment(path, new) for path, new in zip(columns, values, strict=True))


def _where(cursor: Cursor, scope: Scope) -> SqlText | None:
    """Parse [WHERE condition] and the end of the statement; None without a condition."""
    condition = None
    if cursor.accept("WHERE"):
        condition = expression(cursor, scope, what="a condition")
    if not cursor.at_end:
        cursor.fail("WHERE or the end of the statement" if condition is None else "the end")
    return condition
