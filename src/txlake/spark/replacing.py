"""INSERT ... REPLACE USING and REPLACE ON: new rows replace those that they match.

The new rows are written first and compared as the table holds them, so that the source is
evaluated once. A source without rows replaces nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txlake.commit.change import Change
from txlake.commit.data_plane import Placement, Rows
from txlake.errors import InvalidRequest
from txlake.local.types import quote
from txlake.local.writing import WriteResult
from txlake.log.snapshot import unknown_column
from txlake.protocol.types import Primitive
from txlake.spark import dml
from txlake.spark.inserts import replacement_change, write_rows
from txlake.spark.spark_errors import translating
from txlake.spark.table_access import TableAccess
from txlake.sql.statements import Expression, NativeColumn, SqlText

# So many keys are written out, which tells concurrent writers which rows are meant.
_KEYS_MAX = 64
_PLAIN = (bool, int, str, datetime.date)
_TARGET = "txlake_target"
_SOURCE = "txlake_source"


@translating
def replace_using(
    work: TableAccess,
    new: Rows,
    placement: Placement,
    columns: Sequence[str],
    *,
    literal_of: Callable[[object], str],
    view_of: Callable[[DataFrame], str],
) -> Change:
    """Return the change that replaces the rows with the new rows' keys (`TableData.replace_using`).

    `literal_of` returns a value as an SQL literal. `view_of` creates a temporary view of a frame
    and returns its name. A key with a NULL replaces nothing. Raises InvalidRequest for an unknown
    column.
    """
    names: list[str] = []
    for column in columns:
        item = work.snapshot.schema.find(column)
        if item is None:
            raise unknown_column(column, work.snapshot)
        names.append(item.name)
    written = write_rows(work, new, placement)
    condition: Expression | None = None
    if written.adds:
        frame = _frame(work, written)
        condition = _of_few_keys(work, frame, names, literal_of)
        if condition is None:
            view = quote(view_of(frame))
            equal = " AND ".join(
                f"{_SOURCE}.{quote(name)} = {_TARGET}.{quote(name)}" for name in names
            )
            condition = _exists(view, _SOURCE, equal)
    said = f"REPLACE USING ({', '.join(names)})"
    return _replaced(work, written, condition, _TARGET, said)


@translating
def replace_on(
    work: TableAccess,
    new: DataFrame,
    placement: Placement,
    condition: SqlText,
    *,
    aliases: tuple[str | None, str | None],
    view_of: Callable[[DataFrame], str],
) -> Change:
    """Return the change that replaces the rows for which a new row meets the condition
    (`TableData.replace_on`).

    `aliases`: the table's and the source's. `view_of` creates a temporary view of a frame and
    returns its name. Raises InvalidRequest for a condition with a query in it, an unknown or
    ambiguous column in it, and one alias for both.
    """
    if condition.references:
        raise InvalidRequest(
            f"{work.snapshot.table}: the condition of REPLACE ON can't have a query, found "
            f"{condition.text!r}"
        )
    target = aliases[0] or work.name or _TARGET
    source = aliases[1] or _SOURCE
    if target.lower() == source.lower():
        raise InvalidRequest(
            f"{work.snapshot.table}: the table and the source of REPLACE ON are both {target!r}; "
            "give the source another alias"
        )
    written = write_rows(work, new, placement)
    frame = _frame(work, written).select(*_as_in(new, placement, work))
    # Says what is unknown, or ambiguous; in a subquery the source would silently come first.
    rows = work.scan(work.snapshot.select(None)).alias(target)
    _ = rows.join(frame.alias(source), F.expr(condition.text)).schema
    found = _exists(quote(view_of(frame)), source, condition.text) if written.adds else None
    return _replaced(work, written, found, target, condition.text)


def _as_in(new: DataFrame, placement: Placement, work: TableAccess) -> list[Column]:
    """Return the written columns under their names in the source."""
    if placement.by_name:
        return [F.col(quote(name)) for name in new.columns]
    names = placement.columns or work.snapshot.schema.names
    return [F.col(quote(name)).alias(own) for name, own in zip(names, new.columns, strict=True)]


def _frame(work: TableAccess, written: WriteResult) -> DataFrame:
    """Return the rows that were written, as the table has them after the commit."""
    after = work.after(tuple(written.adds))
    files = after.snapshot.files.table
    paths = [add.path for add in written.adds]
    return after.scan(files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string()))))


def _of_few_keys(
    work: TableAccess, frame: DataFrame, names: Sequence[str], literal_of: Callable[[object], str]
) -> SqlText | None:
    """Return a condition that lists the keys; None if they are more than 64 or have no literals.

    FALSE if every key has a NULL.
    """
    items = (work.snapshot.schema.find(name) for name in names)
    if not all(item is not None and isinstance(item.type, Primitive) for item in items):
        return None
    columns = [F.col(quote(name)) for name in names]
    keys = frame.select(*columns).dropna().distinct().limit(_KEYS_MAX + 1).collect()
    if len(keys) > _KEYS_MAX or not all(_is_plain(value) for key in keys for value in key):
        return None
    each = (
        " AND ".join(
            f"{quote(name)} = {literal_of(value)}" for name, value in zip(names, key, strict=True)
        )
        for key in keys
    )
    return SqlText(" OR ".join(f"({one})" for one in each) or "FALSE")


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN) and not isinstance(value, datetime.datetime)


def _exists(view: str, source: str, condition: str) -> NativeColumn:
    """Return a condition that is true where a row of the view `view` meets `condition`.

    `source` is the view's alias. Names that it lacks are the outer row's.
    """
    return NativeColumn(
        F.expr(f"EXISTS (SELECT 1 FROM {view} AS {quote(source)} WHERE {condition}\n)")
    )


def _replaced(
    work: TableAccess, written: WriteResult, condition: Expression | None, alias: str, said: str
) -> Change:
    """Return the change that deletes the rows of the condition, if there is one, and adds the files
    written.

    `said` describes the deleted rows in the history.
    """
    deleted = None if condition is None else dml.delete(work, condition, alias)
    return replacement_change(work, written, deleted, said)
