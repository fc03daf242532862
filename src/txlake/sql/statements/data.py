"""Statements that read and write rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from txlake.sql.statements.expressions import (
    Constant,
    Default,
    Expression,
    NativeFrame,
    Source,
    SqlText,
    Star,
)
from txlake.sql.statements.names import ChangeRange, Table, TimeTravel
from txlake.sql.statements.tables import Properties


@dataclass(frozen=True, slots=True)
class Select:
    """A query (SELECT, WITH, VALUES, TABLE) whose rows are returned to the caller.

    Attributes:
        as_values: whether the rows may be plain values, if no Spark session is needed for them.
    """

    query: SqlText
    as_values: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """`lake.read`: a table's rows, now or at another time, for which the condition is true.

    Attributes:
        columns: the columns to return, in order; None for all.
    """

    table: Table
    travel: TimeTravel | None = None
    condition: Expression | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """One column of a PARTITION clause: `p = 1`, or just `p` (dynamic: from the source)."""

    column: str
    value: Constant = None
    dynamic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """INSERT INTO, INSERT OVERWRITE, INSERT ... REPLACE { WHERE | USING | ON }.

    Attributes:
        columns: the target columns of the source's columns, in order; None for all.
        by_name: whether columns are matched by name.
        overwrite: replace the rows that `partition` selects, all rows without it.
        replace_where: a condition on the rows to replace; all new rows must match it.
        replace_using: replace rows with the same values in these columns as a new row.
        replace_on: replace rows for which the condition is true with a new row; `alias` and
            `source_alias` name the table and the source in the condition.
        partition: the PARTITION clause, None without one.
        if_not_exists: do nothing where the static partition has rows.
        schema_evolution: add the source's new columns to the table; None leaves it to the session's
            setting where columns are matched by name.
        dynamic_partition_overwrite: whether an overwrite replaces just the partitions that the new
            rows fall into; None leaves it to the session's setting.
        keep_null_partitions: whether such an overwrite keeps the rows of partitions with a NULL;
            has to be None for any other statement.
        app_id, app_version: the statement is carried out once per pair (idempotent writes).
    """

    table: Table
    source: Source
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    overwrite: bool = False
    replace_where: Expression | None = None
    replace_using: tuple[str, ...] = ()
    replace_on: SqlText | None = None
    alias: str | None = None
    source_alias: str | None = None
    partition: tuple[PartitionValue, ...] | None = None
    if_not_exists: bool = False
    schema_evolution: bool | None = None
    dynamic_partition_overwrite: bool | None = None
    keep_null_partitions: bool | None = None
    app_id: str | None = None
    app_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """The micro-batch of a stream that is written.

    Attributes:
        output_mode: "append", or "complete": the rows replace all others.
        reads_target: whether the stream reads the table that it writes.
    """

    query_id: str
    batch_id: int
    output_mode: Literal["append", "complete"]
    reads_target: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """`lake.write`: write rows by column name; create the table if there is none.

    Attributes:
        cluster_by: of a new table.
        location: the location of a named table; a new table is created there.
        merge_schema: add new columns to the table; None leaves it to the session's setting.
        properties: of a new table, and of a table whose schema is overwritten.
        dynamic_partition_overwrite, keep_null_partitions: as in `Insert`.
        data_change: False where the rows are the same that they replace, in other files.
        batch: the micro-batch of a stream that this writes; None for other writes.
    """

    table: Table
    source: NativeFrame
    mode: Literal["error", "append", "overwrite", "ignore"] = "error"
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    location: str | None = None
    properties: Properties = ()
    replace_where: Expression | None = None
    dynamic_partition_overwrite: bool | None = None
    keep_null_partitions: bool | None = None
    overwrite_schema: bool = False
    merge_schema: bool | None = None
    app_id: str | None = None
    app_version: int | None = None
    data_change: bool = True
    batch: StreamBatch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DELETE FROM; deletes every row without a condition."""

    table: Table
    alias: str | None = None
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = value`; `column` is a path, ("a", "b") for the field b of the struct a."""

    column: tuple[str, ...]
    value: Expression | Default


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """UPDATE ... SET."""

    table: Table
    alias: str | None = None
    assignments: tuple[Assignment, ...]
    condition: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedUpdate:
    """WHEN MATCHED [AND condition] THEN UPDATE SET ..."""

    assignments: tuple[Assignment, ...] | Star
    condition: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedDelete:
    """WHEN MATCHED [AND condition] THEN DELETE"""

    condition: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMatchedInsert:
    """WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT ..."""

    assignments: tuple[Assignment, ...] | Star
    condition: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BySourceUpdate:
    """WHEN NOT MATCHED BY SOURCE [AND condition] THEN UPDATE SET ..."""

    assignments: tuple[Assignment, ...]
    condition: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BySourceDelete:
    """WHEN NOT MATCHED BY SOURCE [AND condition] THEN DELETE"""

    condition: Expression | None = None


MergeClause = MatchedUpdate | MatchedDelete | NotMatchedInsert | BySourceUpdate | BySourceDelete


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """MERGE INTO. Clauses in the order written; of each kind the first one that holds applies.

    Attributes:
        target_owners: possible qualifiers of `target_alias` in PySpark's columns: its database, or
            its catalog and its database. In texts they are resolved already.
        source_alias: the name of the source in the expressions: its alias, or else its own name.
    """

    target: Table
    target_alias: str | None = None
    target_owners: tuple[str, ...] = ()
    source: Source
    source_alias: str | None = None
    on: Expression
    clauses: tuple[MergeClause, ...]
    schema_evolution: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInto:
    """COPY INTO: append the files of a folder that were not copied before.

    Attributes:
        location: the folder, file or glob to read.
        columns: the target's columns, in the order of the source's; None matches by name.
        by_position: whether columns are matched by position.
        select: the select list of `FROM (SELECT ... FROM 'location' [WHERE ...])`, a text in
            which `location_span` is replaced by the rows read.
        file_format: PARQUET, CSV, JSON, ..., in capitals.
        files: names below `location`; empty for all.
        pattern: a glob below `location`.
        validate_rows: with VALIDATE the number of rows to return instead of copying, -1 for all.
        more_locations: further locations to read, in Fabric's form.
        fields: in Fabric's form the numbers, from 1, of the files' fields for `columns`; empty for
            all in order. None in Databricks' form.
    """

    table: Table
    location: str
    file_format: str
    columns: tuple[str, ...] | None = None
    by_position: bool = False
    select: SqlText | None = None
    location_span: tuple[int, int] | None = None
    files: tuple[str, ...] = ()
    pattern: str | None = None
    validate_rows: int | None = None
    more_locations: tuple[str, ...] = ()
    fields: tuple[int, ...] | None = None
    format_options: tuple[tuple[str, str], ...] = ()
    copy_options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE TABLE: removes every row."""

    table: Table


@dataclass(frozen=True, slots=True)
class SparkCommand:
    """A command of Spark alone (a temporary view, a setting, EXPLAIN), passed on as written."""

    command: SqlText


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """`lake.changes`: the change data feed of some versions of a table.

    Attributes:
        change_range: the versions; None for the net changes of the session's branch.
    """

    table: Table
    change_range: ChangeRange | None


DataStatement = (
    Select
    | ReadTable
    | ReadChanges
    | Insert
    | Write
    | Delete
    | Update
    | Merge
    | CopyInto
    | Truncate
    | SparkCommand
)
