"""`df.write` in an enabled session.

The writer is Spark's own with `save`, `saveAsTable` and `insertInto` overridden. The lake handles
`save` with the format `delta` or `txlake`, and every name that it has. A new name with one of the
two formats, or without a format, becomes a Delta table of the lake, as with `CREATE TABLE` without
USING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.tables.errors import refusal
from txlake.lake.tables.expressions import condition_of
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.lake_binding import LakeBinding, NameKind, session_for
from txlake.spark_integration.option_recorders import FormatRecorder, flatten_names
from txlake.spark_integration.options import WriteOptions, is_lake_format, write_options
from txlake.spark_integration.overrides import with_overrides
from txlake.spark_integration.table_references import parse_table, resolve_table
from txlake.sql.statements import (
    Expression,
    Insert,
    NativeFrame,
    SqlText,
    Table,
    TableName,
    Write,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter as _Writer
else:
    _Writer = object

Mode = Literal["error", "append", "overwrite", "ignore"]

_MODES: dict[str, Mode] = {
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
    "error": "error",
    "errorifexists": "error",
    "default": "error",
}


class LakeWriter(FormatRecorder, _Writer):
    """The methods of a writer that a lake overrides; made by `writer`."""

    _lake_rows: DataFrame
    _lake_save_mode: str | None
    _lake_partitions: tuple[str, ...] | None
    _lake_clusters: tuple[str, ...] | None
    _lake_buckets: str | None

    def mode(self, saveMode: str | None) -> Any:
        """Set what happens if the table exists."""
        if saveMode is not None:
            self._lake_save_mode = saveMode
        return super().mode(saveMode)

    def partitionBy(self, *cols: Any) -> Any:
        """Set the partition columns."""
        self._lake_partitions = flatten_names(cols)
        return super().partitionBy(*cols)

    def clusterBy(self, *cols: Any) -> Any:
        """Set the clustering columns."""
        self._lake_clusters = flatten_names(cols)
        return super().clusterBy(*cols)

    def bucketBy(self, numBuckets: int, col: Any, *cols: Any) -> Any:
        """Record buckets, which a Delta table doesn't have: the write then raises."""
        self._lake_buckets = "bucketBy"
        return super().bucketBy(numBuckets, col, *cols)

    def sortBy(self, col: Any, *cols: Any) -> Any:
        """Record a sort order, which a Delta table doesn't have: the write then raises."""
        self._lake_buckets = "sortBy"
        return super().sortBy(col, *cols)

    def save(
        self,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        """Write the rows to the table at a path or of a name; Spark writes other formats.

        Raises an AnalysisException for invalid options, and as `Lake.write`.
        """
        source = self._lake_format(format)
        if not is_lake_format(source):
            super().save(path, format, mode, partitionBy, **options)
            return
        self._lake_apply_arguments(mode, partitionBy, options)
        self._lake_save(path, source)

    @with_spark_errors
    def _lake_save(self, path: str | None, source: str | None) -> None:
        """Write the rows to a table of the lake or at a path, as `save`.

        Raises an AnalysisException without a path, or with two.
        """
        with self._lake_binding.fail_on_error():
            options = write_options(self._lake_options)
            if path is not None and options.path is not None:
                raise refusal(
                    "_LEGACY_ERROR_TEMP_1307",
                    f"save({path!r}) has a path, and the option 'path' is {options.path!r}: leave "
                    "one of the two out",
                )
            target = options.path if path is None else path
            if not isinstance(target, str):
                raise InvalidRequest("save needs the path of the table: save(path)")
            table = resolve_table(self._lake_binding, target, source)
        self._lake_write(table, options, None)

    def saveAsTable(
        self,
        name: str,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        """Write the rows to a table by its name; create the table if there is none.

        Spark does so for its own tables and other formats. Raises an AnalysisException for the
        lake's table with another format, and as `Lake.write`.
        """
        source = format or self._lake_source
        if not self._lake_owns(name, source):
            self._lake_forward_format()
            name = self._lake_binding.spark_name(name)
            super().saveAsTable(name, format, mode, partitionBy, **options)
            return
        self._lake_apply_arguments(mode, partitionBy, options)
        self._lake_save_as_table(name)

    @with_spark_errors
    def _lake_owns(self, name: str, source: str | None) -> bool:
        """Return whether the lake writes the table of a name: it has it, or creates it.

        Raises an AnalysisException for the lake's table with another format.
        """
        table = parse_table(name)
        if isinstance(table, TableName) and not self._lake_binding.may_be_in_lake(table):
            return False
        kind = self._lake_binding.kind_of(table)
        if kind is not None and source is not None and not is_lake_format(source):
            raise refusal(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is a {kind.value} of the lake, and {source} is the format of another; "
                "leave the format out, or choose another name",
            )
        if kind is not None or is_lake_format(source):
            return True
        return source is None and not self._lake_binding.spark_has(table)

    @with_spark_errors
    def _lake_save_as_table(self, name: str) -> None:
        """Write the rows to a table of the lake.

        Raises as `require_creatable` and `write_options`.
        """
        table = parse_table(name)
        with self._lake_binding.fail_on_error():
            self._lake_binding.require_creatable(table)
            options = write_options(self._lake_options)
        self._lake_write(table, options, options.path)

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:
        """Insert the rows into an existing table, by the columns' positions.

        All rows are replaced with `overwrite`, or without it in the mode `overwrite`. Spark does so
        for its own tables.
        """
        if not self._lake_exists(tableName):
            super().insertInto(self._lake_binding.spark_name(tableName), overwrite)
            return
        if overwrite is not None:
            self._lake_save_mode = "overwrite" if overwrite else "append"
        self._lake_insert_into(tableName)

    @with_spark_errors
    def _lake_exists(self, name: str) -> bool:
        return self._lake_binding.kind_of(parse_table(name)) is not None

    @with_spark_errors
    def _lake_insert_into(self, name: str) -> None:
        """Insert the rows into a table of the lake by position.

        Raises an AnalysisException with partitionBy, and as `insert`.
        """
        if self._lake_partitions is not None:
            raise refusal(
                "PARTITION_BY_NOT_ALLOWED_WITH_INSERT_INTO",
                "insertInto() can't be used together with partitionBy(): the table's own partition "
                "columns count",
            )
        with self._lake_binding.fail_on_error():
            # Every mode but 'overwrite' appends to the existing table, as in Spark.
            options, mode = write_options(self._lake_options), self._lake_mode("append")
        insert(
            self._lake_binding,
            parse_table(name),
            self._lake_rows,
            options,
            overwrite=mode == "overwrite",
            by_name=False,
        )

    def _lake_apply_arguments(
        self, mode: str | None, partitions: Any, options: dict[str, Any]
    ) -> None:
        """Apply the arguments of `save` that replace earlier calls."""
        if mode is not None:
            self._lake_save_mode = mode
        if partitions is not None:
            self._lake_partitions = flatten_names((partitions,))
        self._lake_options.update(options)

    def _lake_mode(self, default: Mode) -> Mode:
        """Return the save mode, or the default. Raises InvalidRequest for an unknown one."""
        if self._lake_save_mode is None:
            return default
        mode = _MODES.get(self._lake_save_mode.lower())
        if mode is None:
            raise refusal(
                "INVALID_SAVE_MODE",
                f"mode {self._lake_save_mode!r}: expected 'append', 'overwrite', 'ignore', "
                "'error', 'errorifexists' or 'default'",
            )
        return mode

    def _lake_write(self, table: Table, options: WriteOptions, location: str | None) -> None:
        """Write the rows by name, in the open transaction or one of their own.

        Raises UnsupportedFeature for buckets, InvalidRequest for options that the mode doesn't
        allow.
        """
        if self._lake_buckets is not None:
            raise UnsupportedFeature(
                f"{table}: Delta tables have no buckets; leave {self._lake_buckets} out"
            )
        with self._lake_binding.fail_on_error():
            mode = self._lake_mode("error")
        if options.replace_using:
            require_data_change(options, table)
            if mode != "overwrite":
                raise InvalidRequest(f"{table}: replaceUsing goes with mode 'overwrite'")
            insert(
                self._lake_binding, table, self._lake_rows, options, overwrite=True, by_name=True
            )
            return
        statement = Write(
            table=table,
            source=NativeFrame(self._lake_rows),
            mode=mode,
            partition_by=self._lake_partitions,
            cluster_by=self._lake_clusters,
            location=location,
            properties=options.properties,
            replace_where=_condition(options.replace_where),
            dynamic_partition_overwrite=_dynamic(options) if mode == "overwrite" else None,
            keep_null_partitions=options.keep_null_partitions,
            overwrite_schema=bool(options.overwrite_schema),
            merge_schema=options.merge_schema,
            app_id=options.app_id,
            app_version=options.app_version,
            data_change=options.data_change,
        )
        _carry_out(self._lake_binding, statement, options)


def writer(binding: LakeBinding, rows: DataFrame, plain: Any) -> Any:
    """Return Spark's writer of the rows with the lake's methods."""
    return with_overrides(
        plain,
        LakeWriter,
        _lake_binding=binding,
        _lake_rows=rows,
        _lake_options={},
        _lake_source=None,
        _lake_save_mode=None,
        _lake_partitions=None,
        _lake_clusters=None,
        _lake_buckets=None,
    )


def insert(
    binding: LakeBinding,
    table: Table,
    rows: DataFrame,
    options: WriteOptions,
    *,
    overwrite: bool,
    by_name: bool,
    condition: Expression | None = None,
    by_partition: bool = False,
) -> None:
    """Insert a DataFrame's rows into an existing table.

    Args:
        overwrite: replaces the rows selected by `condition`, else by the options, or else all rows.
        by_name: columns are matched by name, not by position.
        by_partition: replaces the partitions that the new rows fall into.

    Raises InvalidRequest for a view, and for options that select replaced rows without an
    overwrite; UnsupportedFeature for dataChange=false; and as `Lake.write`.
    """
    if binding.kind_of(table) is NameKind.VIEW:
        raise refusal("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table")
    require_data_change(options, table)
    where = condition or _condition(options.replace_where)
    if not overwrite and (where is not None or options.replace_using):
        name = "replaceWhere" if where is not None else "replaceUsing"
        raise InvalidRequest(f"{table}: {name} goes with an overwrite; leave it out")
    replaces_all = overwrite and where is None and not options.replace_using
    statement = Insert(
        table=table,
        source=NativeFrame(rows),
        by_name=by_name,
        overwrite=replaces_all,
        replace_where=where if overwrite else None,
        replace_using=options.replace_using if overwrite else (),
        dynamic_partition_overwrite=True if by_partition else _dynamic(options),
        keep_null_partitions=options.keep_null_partitions,
        schema_evolution=options.merge_schema,
        app_id=options.app_id,
        app_version=options.app_version,
    )
    _carry_out(binding, statement, options)


def _carry_out(binding: LakeBinding, statement: Write | Insert, options: WriteOptions) -> None:
    """Carry out a write with the options that aren't part of its statement."""
    session = session_for(binding, statement.table, options.storage)
    with binding.fail_on_error():
        versions = options.versions_read(statement.table)
    session.carry_out(
        session.current,
        statement,
        user_metadata=options.user_metadata,
        versions_read=versions,
    )


def require_data_change(options: WriteOptions, table: Table) -> None:
    """Raise UnsupportedFeature if the option dataChange is false."""
    if not options.data_change:
        raise UnsupportedFeature(
            f"{table}: dataChange=false goes with save and saveAsTable, and mode 'overwrite'; "
            "OPTIMIZE rewrites files without changing rows, too"
        )


def _dynamic(options: WriteOptions) -> bool | None:
    """Return whether only the written partitions are replaced; None leaves it to the session."""
    return None if options.partition_overwrite is None else options.partition_overwrite == "dynamic"


def _condition(text: str | None) -> SqlText | None:
    """Return an option's condition; None for None. Raises a ParseException as `condition_of`."""
    condition = condition_of(text, ())
    assert condition is None or isinstance(condition, SqlText)
    return condition
