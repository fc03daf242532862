"""`df.writeTo(name)` in a session that was given to a lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.spark_integration.door import Door, Meaning
from txlake.spark_integration.errors import as_spark
from txlake.spark_integration.fronts import fronted
from txlake.spark_integration.given import OptionsGiven
from txlake.spark_integration.options import WriteOptions, is_ours, write_options
from txlake.spark_integration.places import named
from txlake.spark_integration.writing import insert, require_change
from txlake.statements import CreateMode, CreateTable, Reference, SqlText, TableName, TablePath
from txlake.statements.names import quoted
from txlake.tables.errors import refused
from txlake.tables.expressions import condition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriterV2 as _Writer
else:
    _Writer = object

_LOCATION = "location"


class WritingTo(OptionsGiven, _Writer):
    """The part of a writer that a lake has a say in; made by `writer_to`."""

    _lake_door: Door
    _lake_rows: DataFrame
    _lake_named: str
    _lake_source: str | None
    _lake_properties: dict[str, str]
    _lake_partitions: tuple[object, ...] | None
    _lake_clusters: tuple[str, ...] | None

    def using(self, provider: str) -> Any:
        """The format."""
        self._lake_source = provider
        return super().using(provider)

    def tableProperty(self, property: str, value: str) -> Any:
        """One property of the new table."""
        self._lake_properties[property] = value
        return super().tableProperty(property, value)

    def partitionedBy(self, col: Any, *cols: Any) -> Any:
        """The partition columns of the new table."""
        self._lake_partitions = (col, *cols)
        return super().partitionedBy(col, *cols)

    def clusterBy(self, col: str, *cols: str) -> Any:
        """The clustering columns of the new table."""
        self._lake_clusters = (col, *cols)
        return super().clusterBy(col, *cols)

    def create(self) -> None:
        """Makes the table; there must be none."""
        self._lake_make("create", super().create)

    def replace(self) -> None:
        """Makes the table in another one's place; there must be one."""
        self._lake_make("replace", super().replace)

    def createOrReplace(self) -> None:
        """Makes the table, in another one's place if there is one."""
        self._lake_make("or_replace", super().createOrReplace)

    def append(self) -> None:
        """Appends the rows by the columns' names."""
        self._lake_insert(super().append, overwrite=False)

    def overwrite(self, condition: Any) -> None:
        """Replaces the rows for which the condition is true."""
        self._lake_insert(lambda: super(WritingTo, self).overwrite(condition), condition=condition)

    def overwritePartitions(self) -> None:
        """Replaces the partitions that the rows fall into."""
        self._lake_insert(super().overwritePartitions, by_partition=True)

    @as_spark
    def _lake_insert(
        self,
        plain: Callable[[], None],
        *,
        overwrite: bool = True,
        condition: str | Column | None = None,
        by_partition: bool = False,
    ) -> None:
        door, table = self._lake_door, named(self._lake_named)
        if door.meaning(table) is None:
            if isinstance(table, TableName) and not door.spark_has(table):
                raise door.unknown(table)
            plain()
            return
        with door.asked():
            asked = write_options(self._lake_given)
            if condition is not None or by_partition:
                _require_no_part(asked, table, by_partition=by_partition)
            where = condition_of(condition, ())
        insert(
            door,
            table,
            self._lake_rows,
            asked,
            overwrite=overwrite,
            by_name=True,
            condition=where,
            by_partition=by_partition,
        )

    @as_spark
    def _lake_make(self, mode: CreateMode, plain: Callable[[], None]) -> None:
        door, table = self._lake_door, named(self._lake_named)
        is_other = self._lake_source is not None and not is_ours(self._lake_source)
        is_elsewhere = isinstance(table, TableName) and not door.may_be_of_lake(table)
        if is_elsewhere or (is_other and door.meaning(table) is None):
            plain()
            return
        if is_other:
            raise refused(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is the lake's, and {self._lake_source} the format of another; leave "
                "using() out, or choose another name",
            )
        with door.asked():
            self._lake_create(table, mode)

    def _lake_create(self, table: TableName | TablePath, mode: CreateMode) -> None:
        door = self._lake_door
        if door.meaning(table) is Meaning.VIEW:
            raise refused("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table")
        door.require_makeable(table)
        asked = write_options(self._lake_given)
        require_change(asked, table)
        called = "createOrReplace" if mode == "or_replace" else mode
        if asked.app_id is not None:
            raise UnsupportedFeature(
                f"{table}: txnAppId goes with append, overwrite and save, not with {called}()"
            )
        if asked.replace_where is not None or asked.replace_using:
            raise InvalidRequest(
                f"{table}: replaceWhere and replaceUsing replace some rows, and {called}() makes "
                "the whole table; use overwrite(condition)"
            )
        if mode != "create" and asked.overwrite_schema is False:
            raise refused(
                "DELTA_ILLEGAL_USAGE",
                f"{table}: {called}() replaces the schema too, which overwriteSchema 'false' "
                "forbids; leave the option out, or use overwrite(lit(True))",
            )
        location = self._lake_location(table, asked.path)
        view = f"txlake_{door.session.engine.system.new_id().replace('-', '')}"
        self._lake_rows.createOrReplaceTempView(view)
        try:
            door.carry_out(
                CreateTable(
                    table=table,
                    partition_by=self._lake_partitioning(table),
                    cluster_by=self._lake_clusters,
                    properties=self._lake_table_properties(asked),
                    location=location,
                    mode=mode,
                    query=reading(view),
                ),
                user_metadata=asked.user_metadata,
            )
        finally:
            door.spark.catalog.dropTempView(view)

    def _lake_table_properties(self, asked: WriteOptions) -> tuple[tuple[str, str], ...]:
        """Those that tableProperty says, which count, and options that are properties."""
        said = {name.lower() for name in self._lake_properties}
        given = tuple(one for one in asked.properties if one[0].lower() not in said)
        own = (one for one in self._lake_properties.items() if one[0].lower() != _LOCATION)
        return (*given, *own)

    def _lake_location(self, table: TableName | TablePath, path: str | None) -> str | None:
        """Where the table is to be: as the option `path`, or the property `location`, says."""
        said = (text for name, text in self._lake_properties.items() if name.lower() == _LOCATION)
        found = path if path is not None else next(said, None)
        return found if isinstance(table, TableName) else None

    def _lake_partitioning(self, table: TableName | TablePath) -> tuple[str, ...] | None:
        if self._lake_partitions is None:
            return None
        columns = self._lake_rows.columns
        found: list[str] = []
        for one in self._lake_partitions:
            name = one if isinstance(one, str) else _name_of(one, columns)
            if name is None:
                raise InvalidRequest(
                    f"{table}: partitionedBy takes columns of the rows ({', '.join(columns)}), "
                    f"found {one}; add a column with the value, and partition by that"
                )
            found.append(name)
        return tuple(found)


def _require_no_part(asked: WriteOptions, table: object, *, by_partition: bool) -> None:
    """Which rows are replaced is said once: by the method, or by an option."""
    if asked.replace_where is None and not asked.replace_using:
        return
    name = "replaceWhere" if asked.replace_where is not None else "replaceUsing"
    told = f"{table}: {name} says which rows are replaced, and the method does too; leave it out"
    if asked.replace_where is None:
        raise InvalidRequest(told)
    if by_partition:
        raise refused("DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE", told)
    raise refused("DELTA_REPLACE_WHERE_IN_OVERWRITE", told)


def reading(view: str) -> SqlText:
    """A query of all of a view's rows."""
    start = len("SELECT * FROM ")
    text = f"SELECT * FROM {quoted(view, always=True)}"
    return SqlText(text, (Reference(TableName((view,)), None, start, len(text)),))


def _name_of(column: object, columns: list[str]) -> str | None:
    """The name of a plain column; None for an expression."""
    text = str(column)
    text = text.removeprefix("Column<").removesuffix(">").strip("'")
    name = text.strip("`")
    return next((one for one in columns if one.lower() == name.lower()), None)


def writer_to(door: Door, rows: DataFrame, plain: Any, table: str) -> Any:
    """Spark's writer of these rows to a name with the lake's ways out."""
    return fronted(
        plain,
        WritingTo,
        _lake_door=door,
        _lake_rows=rows,
        _lake_named=table,
        _lake_given={},
        _lake_properties={},
        _lake_source=None,
        _lake_partitions=None,
        _lake_clusters=None,
    )
