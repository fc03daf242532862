"""`spark.read` and `spark.table` of an enabled session.

The reader is Spark's own with `load` and `table` overridden: the lake reads the formats `delta` and
`txlake` and the lake's names; Spark reads every other format as before. Rows are those of
`Lake.read`: Spark's scan of Parquet files at one version, which joins the read set of the
transaction that writes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from txlake.errors import InvalidRequest
from txlake.lake.tables.errors import refusal
from txlake.spark_integration.errors import with_spark_errors
from txlake.spark_integration.lake_binding import LakeBinding, session_for
from txlake.spark_integration.option_recorders import SchemaRecorder
from txlake.spark_integration.options import FeedRange, ReadOptions, is_lake_format, read_options
from txlake.spark_integration.overrides import with_overrides
from txlake.spark_integration.table_references import parse_table, resolve_table, split_time_travel
from txlake.sql.statements import ChangeRange, ReadChanges, Table, TableName, TablePath, TimeTravel

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader as _Reader
else:
    _Reader = object


class LakeReader(SchemaRecorder, _Reader):
    """The methods of a reader that a lake overrides; made by `reader`."""

    def load(
        self,
        path: str | list[str] | None = None,
        format: str | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> Any:
        """Return the rows of a path or name; Spark reads the formats that aren't the lake's.

        Raises an AnalysisException for invalid options, if there is no table or version, and for a
        schema that isn't the table's.
        """
        source = self._lake_format(format)
        if not is_lake_format(source):
            return super().load(path, format, schema, **options)
        self._lake_options.update(options)
        return self._lake_load(path, source, self._lake_schema if schema is None else schema)

    @with_spark_errors
    def _lake_load(
        self, path: str | list[str] | None, source: str | None, schema: StructType | str | None
    ) -> DataFrame:
        """Return the rows of a table of the lake or at a path, as `load`."""
        with self._lake_binding.fail_on_error():
            options = read_options(self._lake_options)
            text = one_path(path, options.path)
            table = resolve_table(self._lake_binding, text, source)
            table, suffix = split_time_travel(self._lake_binding, table)
            travel = _one_travel(text, options.travel, suffix)
        if isinstance(table, TableName):
            frame = _read_named(self._lake_binding, table, options, travel)
        else:
            frame = _read_path(self._lake_binding, table, options, travel)
        return frame if schema is None else with_schema(frame, schema)

    def table(self, tableName: str) -> Any:
        """Return the rows of a table or view of the lake or of Spark."""
        return _table(self._lake_binding, super().table, tableName, self._lake_options)


def reader(binding: LakeBinding, plain: Any) -> Any:
    """Return Spark's reader with the lake's `load` and `table`."""
    return with_overrides(
        plain,
        LakeReader,
        _lake_binding=binding,
        _lake_source=None,
        _lake_options={},
        _lake_schema=None,
    )


def table(binding: LakeBinding, plain: Callable[[str], DataFrame], tableName: str) -> DataFrame:
    """Return the rows of a table or view of the lake or of Spark, as `spark.table`."""
    return _table(binding, plain, tableName, {})


@with_spark_errors
def _table(
    binding: LakeBinding,
    plain: Callable[[str], DataFrame],
    name: str,
    raw_options: dict[str, object],
) -> DataFrame:
    """Return the rows of a table or view, a temporary view first, then the lake's, then Spark's.

    With time travel, or for changes, only the lake's. Raises an AnalysisException for invalid
    options and for a name that neither has.
    """
    if not isinstance(name, str):
        return plain(name)  # Spark raises its own error
    with binding.fail_on_error():
        options, table = read_options(raw_options), parse_table(name)
        binding.require_resolvable_path(table)
    if isinstance(table, TablePath):
        return _read_path(binding, table, options, options.travel)
    is_temporary = binding.is_temporary(table)
    if binding.kind_of(table) is None or is_temporary:
        if options.travel is None and options.changes is None:
            is_planned_view = (
                is_temporary and binding.kind_of(table) is None and binding.is_planned_view(table)
            )
            if not is_planned_view:
                return binding.run_in_spark(lambda: plain(binding.spark_name(name)))
        elif not binding.spark_has(table):
            raise binding.not_found(table)
    return _read_named(binding, table, options, options.travel)


def _read_named(
    binding: LakeBinding, table: TableName, options: ReadOptions, travel: TimeTravel | None
) -> DataFrame:
    """Return the rows or changes of a name of the lake.

    Raises an AnalysisException if there is none.
    """
    if options.changes is not None:
        return changes(binding, table, options.changes, options.storage)
    if binding.kind_of(table) is None and not binding.is_planned_view(table):
        raise binding.not_found(table)
    return binding.read(table, travel)


def _read_path(
    binding: LakeBinding, table: Table, options: ReadOptions, travel: TimeTravel | None
) -> DataFrame:
    """Return the rows or changes of the table at a path."""
    if options.changes is not None:
        return changes(binding, table, options.changes, options.storage)
    return session_for(binding, table, options.storage).read(table, travel)


def changes(
    binding: LakeBinding, table: Table, feed_range: FeedRange, storage: Mapping[str, str]
) -> DataFrame:
    """Return the change feed of a range of versions, as `Lake.changes`."""
    change_range = ChangeRange(
        TimeTravel(version=feed_range.from_version, timestamp=feed_range.from_timestamp),
        None
        if feed_range.to_version is None and feed_range.to_timestamp is None
        else TimeTravel(version=feed_range.to_version, timestamp=feed_range.to_timestamp),
    )
    return session_for(binding, table, storage).execute(ReadChanges(table, change_range))


def one_path(path: str | list[str] | None, option: str | None = None) -> str:
    """Return the path, given as an argument or as the option `path`.

    Raises InvalidRequest for no path, for several, and for an argument beside the option.
    """
    if path is not None and option is not None:
        raise refusal(
            "_LEGACY_ERROR_TEMP_1306",
            f"the path {path!r} is given, and the option 'path' is {option!r}: leave one of the "
            "two out",
        )
    path = option if path is None else path
    if isinstance(path, list) and len(path) == 1:
        [path] = path
    if not isinstance(path, str):
        raise InvalidRequest(
            f"expected the path or name of one table, found {path!r}; read several one by one, and "
            "join them with union"
        )
    return path


def _one_travel(
    path: str, option: TimeTravel | None, suffix: TimeTravel | None
) -> TimeTravel | None:
    """Return the time travel of the options or of the path's end; None for neither.

    Raises InvalidRequest for both.
    """
    if option is not None and suffix is not None:
        raise InvalidRequest(
            f"{path} ends with a version or time, and versionAsOf or timestampAsOf is given too; "
            "leave one of the two out"
        )
    return option or suffix


def with_schema(
    frame: DataFrame,
    schema: StructType | str,
    condition: str = "DELTA_UNSUPPORTED_SCHEMA_DURING_READ",
) -> DataFrame:
    """Return the rows if they have the requested names and types, in order.

    Raises an AnalysisException with the error condition `condition` otherwise.
    """
    wanted: Any = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    columns = [(field.name, field.dataType) for field in wanted]
    if columns != [(field.name, field.dataType) for field in frame.schema]:
        raise refusal(
            condition,
            f"the table has the schema {frame.schema.simpleString()}, not {wanted.simpleString()}; "
            "leave .schema(...) out, and select or cast what is needed",
        )
    return frame
