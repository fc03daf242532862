"""`df.writeTo(name)` in a session that was given to a lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from txlake.doors.door import Door, Meaning
from txlake.doors.errors import as_spark
from txlake.doors.options import is_ours, write_options
from txlake.doors.places import named
from txlake.doors.writing import insert
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.statements import CreateMode, CreateTable, Reference, SqlText, TableName, TablePath
from txlake.statements.names import quoted
from txlake.tables.errors import refused
from txlake.tables.expressions import condition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriterV2 as _Writer
else:
    _Writer = object


class WritingTo(_Writer):
    """The part of a writer that a lake has a say in; made by `writer_to`."""

    _door: Door
    _rows: DataFrame
    _named: str
    _source: str | None
    _given: dict[str, object]
    _properties: dict[str, str]
    _partitions: tuple[object, ...] | None
    _clusters: tuple[str, ...] | None

    def using(self, provider: str) -> Any:
        """The format."""
        self._source = provider
        return super().using(provider)

    def option(self, key: str, value: Any) -> Any:
        """One option."""
        self._given[key] = value
        return super().option(key, value)

    def options(self, **options: Any) -> Any:
        """Several options."""
        self._given.update(options)
        return super().options(**options)

    def tableProperty(self, property: str, value: str) -> Any:
        """One property of the new table."""
        self._properties[property] = value
        return super().tableProperty(property, value)

    def partitionedBy(self, col: Any, *cols: Any) -> Any:
        """The partition columns of the new table."""
        self._partitions = (col, *cols)
        return super().partitionedBy(col, *cols)

    def clusterBy(self, col: str, *cols: str) -> Any:
        """The clustering columns of the new table."""
        self._clusters = (col, *cols)
        return super().clusterBy(col, *cols)

    def create(self) -> None:
        """Makes the table; there must be none."""
        self._make("create", super().create)

    def replace(self) -> None:
        """Makes the table in another one's place; there must be one."""
        self._make("replace", super().replace)

    def createOrReplace(self) -> None:
        """Makes the table, in another one's place if there is one."""
        self._make("or_replace", super().createOrReplace)

    def append(self) -> None:
        """Appends the rows by the columns' names."""
        self._insert(super().append, overwrite=False)

    def overwrite(self, condition: Any) -> None:
        """Replaces the rows for which the condition is true."""
        self._insert(lambda: super(WritingTo, self).overwrite(condition), condition=condition)

    def overwritePartitions(self) -> None:
        """Replaces the partitions that the rows fall into."""
        self._insert(super().overwritePartitions, by_partition=True)

    @as_spark
    def _insert(
        self,
        plain: Callable[[], None],
        *,
        overwrite: bool = True,
        condition: str | Column | None = None,
        by_partition: bool = False,
    ) -> None:
        door, table = self._door, named(self._named)
        if door.meaning(table) is None:
            if isinstance(table, TableName) and not door.spark_has(table):
                raise door.unknown(table)
            plain()
            return
        with door.asked():
            asked = write_options(self._given)
            where = condition_of(condition, ())
        insert(
            door,
            table,
            self._rows,
            asked,
            overwrite=overwrite,
            by_name=True,
            condition=where,
            by_partition=by_partition,
        )

    @as_spark
    def _make(self, mode: CreateMode, plain: Callable[[], None]) -> None:
        door, table = self._door, named(self._named)
        is_other = self._source is not None and not is_ours(self._source)
        is_elsewhere = isinstance(table, TableName) and not door.may_be_of_lake(table)
        if is_elsewhere or (is_other and door.meaning(table) is None):
            plain()
            return
        if is_other:
            raise refused(
                "TABLE_OR_VIEW_ALREADY_EXISTS",
                f"{table} is the lake's, and {self._source} the format of another; leave using() "
                "out, or choose another name",
            )
        with door.asked():
            self._create(table, mode)

    def _create(self, table: TableName | TablePath, mode: CreateMode) -> None:
        door = self._door
        if door.meaning(table) is Meaning.VIEW:
            raise refused("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", f"{table} is a view, not a table")
        asked = write_options(self._given)
        if asked.app_id is not None:
            raise UnsupportedFeature(
                f"{table}: txnAppId goes with append, overwrite and save, not with {mode}"
            )
        view = f"txlake_{door.session.engine.system.new_id().replace('-', '')}"
        self._rows.createOrReplaceTempView(view)
        try:
            door.carry_out(
                CreateTable(
                    table=table,
                    partition_by=self._partitioning(table),
                    cluster_by=self._clusters,
                    properties=tuple(self._properties.items()),
                    location=self._location(table, asked.path),
                    mode=mode,
                    query=reading(view),
                ),
                user_metadata=asked.user_metadata,
            )
        finally:
            door.spark.catalog.dropTempView(view)

    def _location(self, table: TableName | TablePath, path: str | None) -> str | None:
        found = path if path is not None else self._properties.pop("location", None)
        return found if isinstance(table, TableName) else None

    def _partitioning(self, table: TableName | TablePath) -> tuple[str, ...] | None:
        if self._partitions is None:
            return None
        columns = self._rows.columns
        found: list[str] = []
        for one in self._partitions:
            name = one if isinstance(one, str) else _name_of(one, columns)
            if name is None:
                raise InvalidRequest(
                    f"{table}: partitionedBy takes columns of the rows ({', '.join(columns)}), "
                    f"found {one}; add a column with the value, and partition by that"
                )
            found.append(name)
        return tuple(found)


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
    kind = type("LakeDataFrameWriterV2", (WritingTo, type(plain)), {})
    made: Any = object.__new__(kind)
    made.__dict__.update(plain.__dict__)
    made._door, made._rows, made._named = door, rows, table
    made._given, made._properties = {}, {}
    made._source = made._partitions = made._clusters = None
    return made
