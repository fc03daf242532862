"""The condition that every row which a query takes from its one table must meet.

With it a SELECT reads only files that may match, and under Serializable depends only on rows that
match. Anything but a plain SELECT from one table has no such condition here: it reads all of it.
"""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from txlake.sql.dialect import DIALECT
from txlake.statements import SqlText

_OF_ITS_OWN = (exp.Subquery, exp.Select, exp.SetOperation, exp.Exists, exp.Lateral, exp.Window)


@lru_cache(maxsize=256)
def condition_of(query: SqlText) -> tuple[str, tuple[str, ...]] | None:
    """The WHERE condition, and the names that may qualify its columns; None where there is none.

    The text is sqlglot's rendering, for skipping and conflict checks; Spark gets the author's.
    """
    if len(query.references) != 1:
        return None
    try:
        tree = parse_one(query.text, dialect=DIALECT)
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Select) or tree.args.get("with_") or tree.args.get("with"):
        return None
    if tree.args.get("joins") or tree.args.get("laterals"):
        return None
    source = tree.args.get("from_") or tree.args.get("from")
    where = tree.args.get("where")
    if where is None or source is None or not isinstance(source.this, exp.Table):
        return None
    condition = where.this
    if source.this.args.get("joins") or condition.find(*_OF_ITS_OWN):
        return None
    table = query.references[0].table
    names = (source.this.alias_or_name, str(table))
    return condition.sql(dialect="databricks"), tuple(name for name in names if name)
