"""UPDATE of few rows by the driver, without a Spark job.

Owns when the driver may: it finds the rows, and it computes their values as Spark would.
`log.values` owns what it can compute.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from txlake.local.assignments import Assigned
from txlake.local.caller_rows import fit_column
from txlake.local.candidate_rows import Candidates, arrow_rows_at
from txlake.local.control_columns import ROW_VERSION
from txlake.local.rules import has_rules
from txlake.local.table import LocalTable
from txlake.local.writing import WriteResult, write_arrow
from txlake.log.value_nodes import Value
from txlake.log.values import compute, parse_value
from txlake.protocol.types import Field, from_arrow_type
from txlake.sql.statements import SqlText

_HELD_BYTES_MAX = 256 * 1024 * 1024


def driver_values(
    work: LocalTable, assigned: Assigned, alias: str | None
) -> Mapping[str, Value] | None:
    """Return the new values as `log.values` models them; None where Spark has to compute them."""
    if has_rules(work.snapshot):
        return None
    aliases = tuple(name for name in (alias, work.name) if name is not None)
    values = {}
    for name, entries in assigned.items():
        [(path, expression), *more] = entries
        if path or more or not isinstance(expression, SqlText) or expression.references:
            return None
        value = parse_value(expression.rewritten(lambda _: None), aliases=aliases, rules=work.rules)
        if value is None:
            return None
        values[name] = value
    return values


def write_images(
    work: LocalTable, files: pa.Table, candidates: Candidates, values: Mapping[str, Value]
) -> WriteResult | None:
    """Write the candidate rows with their new values; None where Spark has to compute them.

    Raises InvalidRequest for a value whose type the column can't store.
    """
    if not candidates.certain:
        return None
    old_rows = arrow_rows_at(work, files, candidates.positions, _HELD_BYTES_MAX)
    if old_rows is None:
        return None
    images = _images(work, old_rows, values)
    return None if images is None else write_arrow(images, work.target())


def _images(work: LocalTable, old_rows: pa.Table, values: Mapping[str, Value]) -> pa.Table | None:
    snapshot = work.snapshot
    columns = dict(zip(old_rows.column_names, old_rows.columns, strict=True))
    for name, value in values.items():
        item = snapshot.schema.find(name)
        assert item is not None, "it was resolved"
        computed_value = compute(value, old_rows, snapshot.schema)
        if computed_value is None:
            return None
        source = Field(name, from_arrow_type(computed_value.type))
        stored = fit_column(computed_value, source, item, snapshot)
        if stored is None or (stored.null_count and not item.nullable):
            return None
        columns[item.name] = stored
    if ROW_VERSION in columns:
        columns[ROW_VERSION] = pa.chunked_array([pa.nulls(old_rows.num_rows, pa.int64())])
    return pa.table(columns)
