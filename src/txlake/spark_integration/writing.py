"""`df.write` in a session that was given to a lake.

A writer is Spark's own with `save`, `saveAsTable` and `insertInto` in front. `save` is the lake's
where the format is `delta` or `txlake`. A name is the lake's where the lake has it, and where the
format is one of the two or none is given: a new table is a Delta table then, as `CREATE TABLE`
without USING makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.spark_integration.door import Door, Meaning, session_for
from txlake.spark_integration.errors import as_spark
from txlake.spark_integration.fronts import fronted
from txlake.spark_integration.given import FormatGiven, flat
from txlake.spark_integration.options import WriteOptions, is_ours, write_options
from txlake.spark_integration.places import at, named
from txlake.statements import (
    Expression,
    Insert,
    NativeFrame,
    SqlText,
    Table,
    TableName,
    Write,
)
from txlake.tables.errors import refused
from txlake.tables.expressions import condition_of

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


class Writing(FormatGiven, _Writer):
    """The part of a writer that a lake has a say in; made by `writer`."""

    _lake_rows: DataFrame
    _lake_saving: str | None
    _lake_partitions: tuple[str, ...] | None
    _lake_clusters: tuple[str, ...] | None
    _lake_buckets: str | None

    def mode(self, saveMode: str | None) -> Any:
        """What an existing table means."""
        if saveMode is not None:
            self._lake_saving = saveMode
        return super().mode(saveMode)

    def partitionBy(self, *cols: Any) -> Any:
        """The partition columns."""
        self._lake_partitions = flat(cols)
        return super().partitionBy(*cols)

    def clusterBy(self, *cols: Any) -> Any:
        """The clustering columns."""
        self._lake_clusters = flat(cols)
        return super().clusterBy(*cols)

    def bucketBy(self, numBuckets: int, col: Any, *cols: Any) -> Any:
        """Buckets, which Delta tables don't have."""
        self._lake_buckets = "bucketBy"
        return super().bucketBy(numBuckets, col, *cols)

    def sortBy(self, col: Any, *cols: Any) -> Any:
        """An order of buckets, which Delta tables don't have."""
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
        """Writes to a path, or to a name."""
        source = self._lake_format(format)
        if not is_ours(source):
            super().save(path, format, mode, partitionBy, **options)
            return
        self._lake_say(mode, partitionBy, options)
        self._lake_save(path, source)

    @as_spark
    def _lake_save(self, path: str | None, source: str | None) -> None:
        with self._lake_door.asked():
            asked = write_options(self._lake_given)
            if path is not None and asked.path is not None:
                raise refused(
                    "_LEGACY_ERROR_TEMP_1307",
                    f"save({path!r}) has a path, and the option 'path' is {asked.path!r}: leave "
                    "one of the two out",
                )
            place = asked.path if path is None else path
            if not isinstance(place, str):
                raise InvalidRequest("save needs the path of the table: save(path)")
            table = at(self._lake_door, place, source)
        self._lake_write(table, asked, None)

    def saveAsTable(
        self,
        name: str,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        """Writes to a table by its name, which is made where there is none."""
        source = format or self._lake_source
        if not self._lake_has(name, source):
            self._lake_tell_format()
            name = self._lake_door.for_spark(name)
            super().saveAsTable(name, format, mode, partitionBy, **options)
            return
        self._lake_say(mode, partitionBy, options)
        self._lake_save_as_table(name)

    @as_spark
    def _lake_has(self, name: str, source: str | None) -> bool:
        table = named(name)
        if isinstance(table, TableName) and not self._lake_door.may_be_of_lake(table):
            return False
        meaning = self._lake_door.meaning(table)
        if meaning is not None and source is not None and not is_ours(source):
            raise refused(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is a {meaning.value} of the lake, and {source} is the format of another; "
                "leave the format out, or choose another name",
            )
        if meaning is not None or is_ours(source):
            return True
        return source is None and not self._lake_door.spark_has(table)

    @as_spark
    def _lake_save_as_table(self, name: str) -> None:
        table = named(name)
        with self._lake_door.asked():
            self._lake_door.require_makeable(table)
            asked = write_options(self._lake_given)
        self._lake_write(table, asked, asked.path)

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:
        """Writes to a table, column by column in their order."""
        if not self._lake_is_there(tableName):
            super().insertInto(self._lake_door.for_spark(tableName), overwrite)
            return
        if overwrite is not None:
            self._lake_saving = "overwrite" if overwrite else "append"
        self._lake_insert_into(tableName)

    @as_spark
    def _lake_is_there(self, name: str) -> bool:
        return self._lake_door.meaning(named(name)) is not None

    @as_spark
    def _lake_insert_into(self, name: str) -> None:
        if self._lake_partitions is not None:
            raise refused(
                "PARTITION_BY_NOT_ALLOWED_WITH_INSERT_INTO",
                "insertInto() can't be used together with partitionBy(): the table's own partition "
                "columns count",
            )
        with self._lake_door.asked():
            # Whatever else the mode says: the table is there, and rows are added, as in Spark.
            asked, mode = write_options(self._lake_given), self._lake_mode("append")
        insert(
            self._lake_door,
            named(name),
            self._lake_rows,
            asked,
            overwrite=mode == "overwrite",
            by_name=False,
        )

    def _lake_say(self, mode: str | None, partitions: Any, options: dict[str, Any]) -> None:
        """Arguments of `save` that stand for calls before it."""
        if mode is not None:
            self._lake_saving = mode
        if partitions is not None:
            self._lake_partitions = flat((partitions,))
        self._lake_given.update(options)

    def _lake_mode(self, default: Mode) -> Mode:
        if self._lake_saving is None:
            return default
        found = _MODES.get(self._lake_saving.lower())
        if found is None:
            raise refused(
                "INVALID_SAVE_MODE",
                f"mode {self._lake_saving!r}: expected 'append', 'overwrite', 'ignore', 'error', "
                "'errorifexists' or 'default'",
            )
        return found

    def _lake_write(self, table: Table, asked: WriteOptions, location: str | None) -> None:
        if self._lake_buckets is not None:
            raise UnsupportedFeature(
                f"{table}: Delta tables have no buckets; leave {self._lake_buckets} out"
            )
        with self._lake_door.asked():
            mode = self._lake_mode("error")
        if asked.replace_using:
            require_change(asked, table)
            if mode != "overwrite":
                raise InvalidRequest(f"{table}: replaceUsing goes with mode 'overwrite'")
            insert(self._lake_door, table, self._lake_rows, asked, overwrite=True, by_name=True)
            return
        statement = Write(
            table=table,
            source=NativeFrame(self._lake_rows),
            mode=mode,
            partition_by=self._lake_partitions,
            cluster_by=self._lake_clusters,
            location=location,
            properties=asked.properties,
            replace_where=_condition(asked.replace_where),
            dynamic_partition_overwrite=_dynamic(asked) if mode == "overwrite" else None,
            keep_null_partitions=asked.keep_null_partitions,
            overwrite_schema=bool(asked.overwrite_schema),
            merge_schema=asked.merge_schema,
            app_id=asked.app_id,
            app_version=asked.app_version,
            data_change=asked.data_change,
        )
        session = session_for(self._lake_door, table, asked.storage)
        session.carry_out(session.current, statement, user_metadata=asked.user_metadata)


def writer(door: Door, rows: DataFrame, plain: Any) -> Any:
    """Spark's writer of these rows with the lake's ways out."""
    return fronted(
        plain,
        Writing,
        _lake_door=door,
        _lake_rows=rows,
        _lake_given={},
        _lake_source=None,
        _lake_saving=None,
        _lake_partitions=None,
        _lake_clusters=None,
        _lake_buckets=None,
    )


def insert(
    door: Door,
    table: Table,
    rows: DataFrame,
    asked: WriteOptions,
    *,
    overwrite: bool,
    by_name: bool,
    condition: Expression | None = None,
    by_partition: bool = False,
) -> None:
    """INSERT of a DataFrame's rows into a table that is there.

    Args:
        overwrite: rows give way: those that `condition` or the options say, or all.
        by_partition: those of the partitions that the new rows fall into.
    """
    if door.meaning(table) is Meaning.VIEW:
        raise refused("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table")
    require_change(asked, table)
    where = condition or _condition(asked.replace_where)
    if not overwrite and (where is not None or asked.replace_using):
        name = "replaceWhere" if where is not None else "replaceUsing"
        raise InvalidRequest(f"{table}: {name} goes with an overwrite; leave it out")
    replaces_all = overwrite and where is None and not asked.replace_using
    statement = Insert(
        table=table,
        source=NativeFrame(rows),
        by_name=by_name,
        overwrite=replaces_all,
        replace_where=where if overwrite else None,
        replace_using=asked.replace_using if overwrite else (),
        dynamic_partition_overwrite=True if by_partition else _dynamic(asked),
        keep_null_partitions=asked.keep_null_partitions,
        schema_evolution=asked.merge_schema,
        app_id=asked.app_id,
        app_version=asked.app_version,
    )
    session = session_for(door, table, asked.storage)
    session.carry_out(session.current, statement, user_metadata=asked.user_metadata)


def require_change(asked: WriteOptions, table: Table) -> None:
    """Raises an UnsupportedOperationException where the option dataChange is false."""
    if not asked.data_change:
        raise UnsupportedFeature(
            f"{table}: dataChange=false goes with save and saveAsTable, and mode 'overwrite'; "
            "OPTIMIZE rewrites files without changing rows, too"
        )


def _dynamic(asked: WriteOptions) -> bool | None:
    """Whether partitions alone are replaced; None leaves it to the session's setting."""
    return None if asked.partition_overwrite is None else asked.partition_overwrite == "dynamic"


def _condition(text: str | None) -> SqlText | None:
    found = condition_of(text, ())
    assert found is None or isinstance(found, SqlText)
    return found
