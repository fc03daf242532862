"""UPDATE of few rows by the driver, without a Spark job.

Owns when the driver may: it finds the rows, and it computes their values as Spark would.
`log.values` owns what it can compute.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from txlake.datafiles.files import Uploads
from txlake.local.assignments import Assigned
from txlake.local.caller_rows import fit_column
from txlake.local.candidate_rows import Candidates, arrow_rows_at
from txlake.local.choice import Declined
from txlake.local.control_columns import ROW_VERSION
from txlake.local.rules import has_rules
from txlake.local.table import LocalTable
from txlake.local.writing import WriteResult, write_arrow
from txlake.log.value_nodes import Value
from txlake.log.values import compute, parse_value
from txlake.protocol.types import Field, from_arrow_type
from txlake.sql.statements import SqlText

_HELD_BYTES_MAX = 256 * 1024 * 1024


def driver_values(work: LocalTable, assigned: Assigned, alias: str | None) -> Mapping[str, Value]:
    """Return the new values by column, as `log.values` models them.

    Raises Declined where Spark has to compute them: the table has rules, a struct's field is
    assigned, or a value isn't an expression that the driver knows.
    """
    if has_rules(work.snapshot):
        raise Declined("the table has rules that Spark checks")
    aliases = tuple(name for name in (alias, work.name) if name is not None)
    values = {}
    for name, entries in assigned.items():
        [(path, expression), *more] = entries
        if path or more or not isinstance(expression, SqlText) or expression.references:
            raise Declined(f"the value of {name} isn't an expression over one row's columns")
        value = parse_value(expression.rewritten(lambda _: None), aliases=aliases, rules=work.rules)
        if value is None:
            raise Declined(f"the value of {name} is an expression that the driver doesn't know")
        values[name] = value
    return values


def write_images(
    work: LocalTable,
    files: pa.Table,
    candidates: Candidates,
    values: Mapping[str, Value],
    uploads: Uploads,
) -> WriteResult:
    """Write the candidate rows with their new values; the caller waits for `uploads` and commits
    the result.

    `candidates` are rows of `files`. Raises Declined where Spark has to compute them, before
    anything is written; InvalidRequest for a value whose type the column can't store.
    """
    if not candidates.certain:
        raise Declined("the driver can't decide the condition for every row")
    old_rows = arrow_rows_at(work, files, candidates.positions, _HELD_BYTES_MAX)
    return write_arrow(_images(work, old_rows, values), work.target(), uploads)


def _images(work: LocalTable, old_rows: pa.Table, values: Mapping[str, Value]) -> pa.Table:
    """Return the rows with their new values; the commit versions of row tracking become null.

    Raises as `write_images`. Values are computed from the old rows only.
    """
    snapshot = work.snapshot
    columns = dict(zip(old_rows.column_names, old_rows.columns, strict=True))
    for name, value in values.items():
        item = snapshot.schema.find(name)
        assert item is not None, "it was resolved"
        computed_value = compute(value, old_rows, snapshot.schema)
        if computed_value is None:
            raise Declined(f"the driver can't compute the value of {name} exactly")
        source = Field(name, from_arrow_type(computed_value.type))
        stored = fit_column(computed_value, source, item, snapshot)
        if stored is None or (stored.null_count and not item.nullable):
            raise Declined(f"the value of {name} needs a conversion or a check by Spark")
        columns[item.name] = stored
    if ROW_VERSION in columns:
        columns[ROW_VERSION] = pa.chunked_array([pa.nulls(old_rows.num_rows, pa.int64())])
    return pa.table(columns)
