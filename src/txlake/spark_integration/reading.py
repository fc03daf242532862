"""`spark.read` and `spark.table` of a session that was given to a lake.

A reader is Spark's own with `load` and `table` in front: `format("delta")` and `format("txlake")`
are the lake's, and so are its names; every other format is Spark's as before. Rows come as
`Lake.read` gives them: Spark's scan of Parquet files, at one version, which counts as read where
they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from txlake.errors import InvalidRequest
from txlake.spark_integration.door import Door, session_for
from txlake.spark_integration.errors import as_spark
from txlake.spark_integration.fronts import fronted
from txlake.spark_integration.given import SchemaGiven
from txlake.spark_integration.options import Range, ReadOptions, is_ours, read_options
from txlake.spark_integration.places import at, named, with_moment
from txlake.statements import ChangeRange, ReadChanges, Table, TableName, TablePath, TimeTravel
from txlake.tables.errors import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader as _Reader
else:
    _Reader = object


class Reading(SchemaGiven, _Reader):
    """The part of a reader that a lake has a say in; made by `reader`."""

    def load(
        self,
        path: str | list[str] | None = None,
        format: str | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> Any:
        """The rows at a path, or of a name."""
        source = self._lake_format(format)
        if not is_ours(source):
            return super().load(path, format, schema, **options)
        self._lake_given.update(options)
        return self._lake_load(path, source, self._lake_wanted if schema is None else schema)

    @as_spark
    def _lake_load(
        self, path: str | list[str] | None, source: str | None, schema: StructType | str | None
    ) -> DataFrame:
        with self._lake_door.asked():
            asked = read_options(self._lake_given)
            place = one_place(path, asked.path)
            table, moment = with_moment(self._lake_door, at(self._lake_door, place, source))
            travel = _one_travel(place, asked.travel, moment)
        if isinstance(table, TableName):
            frame = _named(self._lake_door, table, asked, travel)
        else:
            frame = _placed(self._lake_door, table, asked, travel)
        return frame if schema is None else with_schema(frame, schema)

    def table(self, tableName: str) -> Any:
        """The rows of a table or view, of the lake's or of Spark's."""
        return _table(self._lake_door, super().table, tableName, self._lake_given)


def reader(door: Door, plain: Any) -> Any:
    """Spark's reader with the lake's `load` and `table`."""
    return fronted(
        plain, Reading, _lake_door=door, _lake_source=None, _lake_given={}, _lake_wanted=None
    )


def table(door: Door, plain: Callable[[str], DataFrame], tableName: str) -> DataFrame:
    """`spark.table`: the rows of a table or view, of the lake's or of Spark's."""
    return _table(door, plain, tableName, {})


@as_spark
def _table(
    door: Door, plain: Callable[[str], DataFrame], name: str, given: dict[str, object]
) -> DataFrame:
    if not isinstance(name, str):
        return plain(name)  # Spark says what it expects
    with door.asked():
        asked, table = read_options(given), named(name)
        door.require_place(table)
    if isinstance(table, TablePath):
        return _placed(door, table, asked, asked.travel)
    is_temporary = door.is_temporary(table)
    if door.meaning(table) is None or is_temporary:
        if asked.travel is None and asked.changes is None:
            is_planned = is_temporary and door.meaning(table) is None and door.is_planned(table)
            if not is_planned:
                return door.from_spark(lambda: plain(door.for_spark(name)))
        elif not door.spark_has(table):
            raise door.unknown(table)
    return _named(door, table, asked, asked.travel)


def _named(
    door: Door, table: TableName, asked: ReadOptions, travel: TimeTravel | None
) -> DataFrame:
    if asked.changes is not None:
        return changes(door, table, asked.changes, asked.storage)
    if door.meaning(table) is None and not door.is_planned(table):
        raise door.unknown(table)
    return door.read(table, travel)


def _placed(door: Door, table: Table, asked: ReadOptions, travel: TimeTravel | None) -> DataFrame:
    if asked.changes is not None:
        return changes(door, table, asked.changes, asked.storage)
    return session_for(door, table, asked.storage).read(table, travel)


def changes(door: Door, table: Table, wanted: Range, storage: Mapping[str, str]) -> DataFrame:
    """`readChangeFeed`: the rows that changed, with what became of each; as `Lake.changes`."""
    asked = ChangeRange(
        TimeTravel(version=wanted.from_version, timestamp=wanted.from_timestamp),
        None
        if wanted.to_version is None and wanted.to_timestamp is None
        else TimeTravel(version=wanted.to_version, timestamp=wanted.to_timestamp),
    )
    return session_for(door, table, storage).execute(ReadChanges(table, asked))


def one_place(path: str | list[str] | None, option: str | None = None) -> str:
    """The one path that is given, as an argument or as the option `path`.

    Raises an AnalysisException for none, for several, and for both.
    """
    if path is not None and option is not None:
        raise refused(
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
    place: str, option: TimeTravel | None, moment: TimeTravel | None
) -> TimeTravel | None:
    if option is not None and moment is not None:
        raise InvalidRequest(
            f"{place} has a moment at its end, and versionAsOf or timestampAsOf is given too; "
            "leave one of the two out"
        )
    return option or moment


def with_schema(
    frame: DataFrame,
    schema: StructType | str,
    condition: str = "DELTA_UNSUPPORTED_SCHEMA_DURING_READ",
) -> DataFrame:
    """The rows, when the schema that was given is theirs; `condition` is the error's when not."""
    wanted: Any = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    told = [(item.name, item.dataType) for item in wanted]
    if told != [(item.name, item.dataType) for item in frame.schema]:
        raise refused(
            condition,
            f"the table has the schema {frame.schema.simpleString()}, not {wanted.simpleString()}; "
            "leave .schema(...) out, and select or cast what is needed",
        )
    return frame
