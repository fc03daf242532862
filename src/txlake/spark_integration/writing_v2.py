"""`df.writeTo(name)` in an enabled session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.lake.tables.errors import refusal
from txlake.lake.tables.expressions import condition_of
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.lake_binding import LakeBinding, NameKind
from txlake.spark_integration.option_recorders import OptionsRecorder
from txlake.spark_integration.options import (
    READ_VERSION,
    WriteOptions,
    is_lake_format,
    write_options,
)
from txlake.spark_integration.overrides import with_overrides
from txlake.spark_integration.table_references import parse_table
from txlake.spark_integration.writing import insert, require_data_change
from txlake.sql.statements import CreateMode, CreateTable, Reference, SqlText, TableName, TablePath
from txlake.sql.statements.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriterV2 as _Writer
else:
    _Writer = object

_LOCATION = "location"


class LakeWriterV2(OptionsRecorder, _Writer):
    """The methods of a writer that a lake overrides; made by `writer_to`."""

    _lake_binding: LakeBinding
    _lake_rows: DataFrame
    _lake_target: str
    _lake_source: str | None
    _lake_properties: dict[str, str]
    _lake_partitions: tuple[object, ...] | None
    _lake_clusters: tuple[str, ...] | None

    def using(self, provider: str) -> Any:
        """Set the format."""
        self._lake_source = provider
        return super().using(provider)

    def tableProperty(self, property: str, value: str) -> Any:
        """Set one property of the new table."""
        self._lake_properties[property] = value
        return super().tableProperty(property, value)

    def partitionedBy(self, col: Any, *cols: Any) -> Any:
        """Set the partition columns of the new table."""
        self._lake_partitions = (col, *cols)
        return super().partitionedBy(col, *cols)

    def clusterBy(self, col: str, *cols: str) -> Any:
        """Set the clustering columns of the new table."""
        self._lake_clusters = (col, *cols)
        return super().clusterBy(col, *cols)

    def create(self) -> None:
        """Create the table with the rows. Raises an AnalysisException if it exists."""
        self._lake_create_table("create", super().create)

    def replace(self) -> None:
        """Replace the table by one of the rows. Raises an AnalysisException if there is none."""
        self._lake_create_table("replace", super().replace)

    def createOrReplace(self) -> None:
        """Create the table with the rows, or replace an existing one by them."""
        self._lake_create_table("or_replace", super().createOrReplace)

    def append(self) -> None:
        """Append the rows by the columns' names.

        Raises an AnalysisException if there is no table.
        """
        self._lake_insert(super().append, overwrite=False)

    def overwrite(self, condition: Any) -> None:
        """Replace the rows for which the condition is true by these rows, columns by name.

        Raises an AnalysisException if there is no table, and for a new row that doesn't match.
        """
        self._lake_insert(
            lambda: super(LakeWriterV2, self).overwrite(condition), condition=condition
        )

    def overwritePartitions(self) -> None:
        """Replace the partitions that the rows fall into; all rows of a table without partitions.

        Raises an AnalysisException if there is no table.
        """
        self._lake_insert(super().overwritePartitions, by_partition=True)

    @with_spark_errors
    def _lake_insert(
        self,
        plain: Callable[[], None],
        *,
        overwrite: bool = True,
        condition: str | Column | None = None,
        by_partition: bool = False,
    ) -> None:
        """Insert the rows into an existing table of the lake, or call Spark's own `plain`.

        Raises an AnalysisException for a name that neither has, and as `insert`.
        """
        binding, table = self._lake_binding, parse_table(self._lake_target)
        if binding.kind_of(table) is None:
            if isinstance(table, TableName) and not binding.spark_has(table):
                raise binding.not_found(table)
            plain()
            return
        with binding.fail_on_error():
            options = write_options(self._lake_options)
            if condition is not None or by_partition:
                _require_no_row_options(options, table, by_partition=by_partition)
            where = condition_of(condition, ())
        insert(
            binding,
            table,
            self._lake_rows,
            options,
            overwrite=overwrite,
            by_name=True,
            condition=where,
            by_partition=by_partition,
        )

    @with_spark_errors
    def _lake_create_table(self, mode: CreateMode, plain: Callable[[], None]) -> None:
        """Create or replace a table in the lake, or call Spark's own `plain` for other formats.

        Raises an AnalysisException for the lake's table with another format.
        """
        binding, table = self._lake_binding, parse_table(self._lake_target)
        is_other_format = self._lake_source is not None and not is_lake_format(self._lake_source)
        is_other_catalog = isinstance(table, TableName) and not binding.may_be_in_lake(table)
        if is_other_catalog or (is_other_format and binding.kind_of(table) is None):
            plain()
            return
        if is_other_format:
            raise refusal(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is the lake's, and {self._lake_source} the format of another; leave "
                "using() out, or choose another name",
            )
        with binding.fail_on_error():
            self._lake_create(table, mode)

    def _lake_create(self, table: TableName | TablePath, mode: CreateMode) -> None:
        """Create or replace a table of the lake with the rows, in the open transaction or its own.

        Raises InvalidRequest for a view, options that select rows, and as `require_creatable`;
        UnsupportedFeature for txnAppId, readVersion and dataChange=false.
        """
        binding = self._lake_binding
        if binding.kind_of(table) is NameKind.VIEW:
            raise refusal("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table")
        binding.require_creatable(table)
        options = write_options(self._lake_options)
        require_data_change(options, table)
        called = "createOrReplace" if mode == "or_replace" else mode
        for name, value in (("txnAppId", options.app_id), (READ_VERSION, options.read_version)):
            if value is not None:
                raise UnsupportedFeature(
                    f"{table}: {name} goes with append, overwrite and save, not with {called}()"
                )
        if options.replace_where is not None or options.replace_using:
            raise InvalidRequest(
                f"{table}: replaceWhere and replaceUsing replace some rows, and {called}() makes "
                "the whole table; use overwrite(condition)"
            )
        if mode != "create" and options.overwrite_schema is False:
            raise refusal(
                "DELTA_ILLEGAL_USAGE",
                f"{table}: {called}() replaces the schema too, which overwriteSchema 'false' "
                "forbids; leave the option out, or use overwrite(lit(True))",
            )
        location = self._lake_location(table, options.path)
        view = f"txlake_{binding.session.engine.system.new_id().replace('-', '')}"
        self._lake_rows.createOrReplaceTempView(view)
        try:
            binding.carry_out(
                CreateTable(
                    table=table,
                    partition_by=self._lake_partitioning(table),
                    cluster_by=self._lake_clusters,
                    properties=self._lake_table_properties(options),
                    location=location,
                    mode=mode,
                    query=select_all(view),
                ),
                user_metadata=options.user_metadata,
            )
        finally:
            binding.spark.catalog.dropTempView(view)

    def _lake_table_properties(self, options: WriteOptions) -> tuple[tuple[str, str], ...]:
        """Return the properties of `tableProperty` and of the options; the former win."""
        overridden = {name.lower() for name in self._lake_properties}
        from_options = tuple(
            (name, value) for name, value in options.properties if name.lower() not in overridden
        )
        properties = self._lake_properties.items()
        own = ((name, value) for name, value in properties if name.lower() != _LOCATION)
        return (*from_options, *own)

    def _lake_location(self, table: TableName | TablePath, path: str | None) -> str | None:
        """Return the new table's location: the option `path`, else the property `location`.

        None without either, and for a path table.
        """
        properties = self._lake_properties.items()
        locations = (text for name, text in properties if name.lower() == _LOCATION)
        location = path if path is not None else next(locations, None)
        return location if isinstance(table, TableName) else None

    def _lake_partitioning(self, table: TableName | TablePath) -> tuple[str, ...] | None:
        """Return the names of the partition columns; None without partitionedBy.

        Raises InvalidRequest for an expression.
        """
        if self._lake_partitions is None:
            return None
        columns = self._lake_rows.columns
        names: list[str] = []
        for column in self._lake_partitions:
            name = column if isinstance(column, str) else _name_of(column, columns)
            if name is None:
                raise InvalidRequest(
                    f"{table}: partitionedBy takes columns of the rows ({', '.join(columns)}), "
                    f"found {column}; add a column with the value, and partition by that"
                )
            names.append(name)
        return tuple(names)


def _require_no_row_options(options: WriteOptions, table: object, *, by_partition: bool) -> None:
    """Raise InvalidRequest for replaceWhere and replaceUsing: the method selects the replaced rows.

    `by_partition`: the method replaces partitions, which decides the error class.
    """
    if options.replace_where is None and not options.replace_using:
        return
    name = "replaceWhere" if options.replace_where is not None else "replaceUsing"
    message = f"{table}: {name} says which rows are replaced, and the method does too; leave it out"
    if options.replace_where is None:
        raise InvalidRequest(message)
    if by_partition:
        raise refusal("DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE", message)
    raise refusal("DELTA_REPLACE_WHERE_IN_OVERWRITE", message)


def select_all(view: str) -> SqlText:
    """Return a query of all rows of a view."""
    start = len("SELECT * FROM ")
    text = f"SELECT * FROM {quoted(view, always=True)}"
    return SqlText(text, (Reference(TableName((view,)), None, start, len(text)),))


def _name_of(column: object, columns: list[str]) -> str | None:
    """Return the name of a plain column among these columns; None for an expression."""
    text = str(column)
    text = text.removeprefix("Column<").removesuffix(">").strip("'")
    name = text.strip("`")
    return next((column for column in columns if column.lower() == name.lower()), None)


def writer_to(binding: LakeBinding, rows: DataFrame, plain: Any, table: str) -> Any:
    """Return Spark's writer of the rows to a name, with the lake's methods."""
    return with_overrides(
        plain,
        LakeWriterV2,
        _lake_binding=binding,
        _lake_rows=rows,
        _lake_target=table,
        _lake_options={},
        _lake_properties={},
        _lake_source=None,
        _lake_partitions=None,
        _lake_clusters=None,
    )
