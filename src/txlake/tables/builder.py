"""`DeltaTableBuilder`: a table's definition, collected one call at a time, then created."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from pyspark.sql.types import DataType, LongType, StructField, StructType

from txlake.errors import InvalidRequest
from txlake.protocol.properties import canonical_key
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import Primitive
from txlake.statements import (
    ColumnSpec,
    CreateMode,
    CreateTable,
    Identity,
    NativeType,
    Table,
    TableName,
    TablePath,
    table_of,
)
from txlake.storage.locations import canonical_url
from txlake.tables.arguments import string, strings, wrong_type
from txlake.tables.errors import (
    ArgumentValueRefused,
    as_delta_spark,
    refuse_text,
    refused,
    unsupported,
)
from txlake.tables.executor import Executor, knowing_names
from txlake.tables.spark_catalog import create_named, knows_delta

if TYPE_CHECKING:
    from txlake.tables.table import DeltaTable

_GENERATION = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_IDENTITY = "delta.identity"
_COMMENT = "comment"


@dataclass
class IdentityGenerator:
    """Numbers for an identity column: `start`, then one `step` further each row."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """The definition of a new table; `DeltaTable.create` and its like make it.

    A name, a location or both must be given before `execute`. Every call changes this builder and
    returns it.
    """

    def __init__(
        self,
        executor: Executor,
        mode: CreateMode,
        opened: Callable[[Executor, Table, TableName | None], DeltaTable],
    ) -> None:
        self._executor = executor
        self._mode = mode
        self._opened = opened
        self._identifier: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._columns: list[ColumnSpec] = []
        self._partition_by: tuple[str, ...] | None = None
        self._cluster_by: tuple[str, ...] | None = None
        self._properties: dict[str, str] = {}

    # Programs written for delta-spark pass a Scala list of columns to the builder underneath.

    @property
    def _jbuilder(self) -> DeltaTableBuilder:
        return self

    @_jbuilder.setter
    def _jbuilder(self, builder: DeltaTableBuilder) -> None:
        if builder is not self:
            raise wrong_type("_jbuilder must be this builder.", builder)

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """The table's name, `table` or `database.table`; or ``delta.`/path` ``.

        Raises a TypeError for what is no text.
        """
        self._identifier = string(identifier, "Identifier")
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """The folder or URL that holds the table. Raises a TypeError for what is no text."""
        self._location = string(location, "Location")
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """The table's comment. Raises a TypeError for what is no text."""
        self._comment = string(comment, "Table comment")
        return self

    @as_delta_spark
    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """One more column.

        Args:
            dataType: a type of PySpark, or its DDL text.
            generatedAlwaysAs: the SQL expression that computes the column, or an identity.
            generatedByDefaultAs: an identity that fills the column where rows don't.

        Raises a TypeError for arguments of another type, a ValueError for both kinds of generation
        at once or an identity of step 0, a ParseException for a text that is no type, an
        UnsupportedOperationException for an identity that isn't a bigint.
        """
        name = string(colName, "Column name")
        if not isinstance(dataType, str | DataType):
            raise wrong_type("Column data type must be str or DataType.", dataType)
        if not isinstance(nullable, bool):
            raise wrong_type("Column nullable must be bool.", nullable)
        is_long = _is_long(dataType)
        if generatedAlwaysAs is not None and generatedByDefaultAs is not None:
            raise ArgumentValueRefused(
                "generatedByDefaultAs and generatedAlwaysAs cannot both be set, found "
                f"{generatedByDefaultAs} and {generatedAlwaysAs}"
            )
        generated: str | None = None
        identity: Identity | None = None
        if isinstance(generatedAlwaysAs, str):
            generated = generatedAlwaysAs
        elif isinstance(generatedAlwaysAs, IdentityGenerator):
            identity = _identity(generatedAlwaysAs, True, name, dataType, is_long)
        elif generatedAlwaysAs is not None:
            raise wrong_type(
                "Generated always as expression must be str or IdentityGenerator.",
                generatedAlwaysAs,
            )
        if isinstance(generatedByDefaultAs, IdentityGenerator):
            identity = _identity(generatedByDefaultAs, False, name, dataType, is_long)
        elif generatedByDefaultAs is not None:
            raise wrong_type(
                "Generated by default expression must be IdentityGenerator.", generatedByDefaultAs
            )
        if comment is not None:
            string(comment, "Column comment")
        self._columns.append(
            ColumnSpec(
                name=name,
                data_type=dataType if isinstance(dataType, str) else NativeType(dataType),
                nullable=nullable,
                comment=comment,
                generated=generated,
                identity=identity,
            )
        )
        return self

    @as_delta_spark
    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder:
        """The columns of a schema; comments, generation and defaults in its metadata included.

        Raises a TypeError for what is no schema, nor a list of its fields.
        """
        fields: object = cols.fields if isinstance(cols, StructType) else cols
        if not isinstance(fields, list):
            raise wrong_type("Schema must be StructType or a list of StructField.", cols)
        for field in fields:
            if not isinstance(field, StructField):
                raise wrong_type("Column in existing schema must be StructField.", field)
        self._columns += map(_spec, fields)
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """The columns that partition the table, one by one or as one list.

        Raises a TypeError for what is no text.
        """
        self._partition_by = strings(_unwrapped(cols), "Partitioning column")
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """The columns that cluster the table, one by one or as one list.

        Raises a TypeError for what is no text.
        """
        self._cluster_by = strings(_unwrapped(cols), "Clustering column")
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """One more table property. Raises a TypeError for what is no text."""
        given: tuple[object, ...] = (key, value)
        if not all(isinstance(one, str) for one in given):
            raise wrong_type("Key and value of property must be string.", *given)
        self._properties[key] = value
        return self

    @as_delta_spark
    def execute(self) -> DeltaTable:
        """Creates or replaces the table.

        A name goes to the session's own catalog when it knows Delta, else to the lake, which is the
        one that is open in the Spark session; a table of the session's catalog without a location
        is its own (managed) and goes with DROP TABLE. Where `create` names a table that is there at
        its location, and says nothing else of it, the table stays as it is and gets the name.

        Raises an AnalysisException when the table exists or doesn't, against what was asked, and
        for a definition that can't be; nothing is written then. Raises a ParseException for a text
        that is no name, a Conflict when another one creates it at the same time, and an
        UnsupportedOperationException for what txlake doesn't write.
        """
        if self._partition_by and self._cluster_by:
            raise refused(
                "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
                "a table is either clustered or partitioned: leave out partitionedBy or clusterBy",
            )
        table = self._table()
        if isinstance(table, TableName):
            spark = self._executor.spark
            if knows_delta(spark, table):
                place = create_named(spark, table, self._location, self._mode, self._write)
                return self._opened(self._executor, place, table)
            self._executor = knowing_names(self._executor)
        self._write(table, self._mode)
        return self._opened(self._executor, table, None)

    def _table(self) -> Table:
        if self._identifier is None:
            if self._location is None:
                raise refused(
                    "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION",
                    "the new table needs a name or a location: call tableName or location",
                )
            return TablePath(self._location)
        try:
            table = table_of(self._identifier)
        except InvalidRequest as error:
            refuse_text(error)
        if (
            isinstance(table, TablePath)
            and self._location is not None
            and canonical_url(table.location) != canonical_url(self._location)
        ):
            raise refused(
                "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH",
                f"the table's name {self._identifier} is a place, and its location is another: "
                f"{self._location}; leave one of the two out",
            )
        return table

    def _write(self, table: Table, mode: CreateMode) -> None:
        location = self._location if isinstance(table, TableName) else None
        if mode == "create" and isinstance(table, TablePath) and self._takes_over(table):
            return
        self._executor.execute(
            CreateTable(
                table=table,
                columns=tuple(self._columns),
                partition_by=self._partition_by,
                cluster_by=self._cluster_by,
                properties=self._all_properties(),
                location=location,
                comment=self._comment,
                mode=mode,
            )
        )

    def _takes_over(self, place: TablePath) -> bool:
        """Whether just a name is given to a table that is there: nothing else was said of it."""
        said = self._columns or self._partition_by or self._cluster_by or self._properties
        named = self._identifier is not None and self._location is not None
        return named and not said and self._executor.exists(place)

    def _all_properties(self) -> tuple[tuple[str, str], ...]:
        own = {canonical_key(key): value for key, value in self._properties.items()}
        return tuple(own.items())


def _is_long(data_type: str | DataType) -> bool:
    if isinstance(data_type, DataType):
        return isinstance(data_type, LongType)
    try:
        return parse_type(data_type) == Primitive("long")
    except InvalidRequest as error:
        refuse_text(error)


def _identity(
    generator: IdentityGenerator, always: bool, name: str, data_type: object, is_long: bool
) -> Identity:
    if generator.step == 0:
        raise ArgumentValueRefused(
            f"column {name}: an identity needs a step that is not 0, found {generator}"
        )
    if not is_long:
        raise unsupported(
            "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
            f"column {name}: an identity column's type must be bigint, found {data_type}",
        )
    return Identity(always, generator.start, generator.step)


def _spec(field: StructField) -> ColumnSpec:
    metadata: Mapping[str, object] = field.metadata

    def text(key: str) -> str | None:
        value = metadata.get(key)
        return value if isinstance(value, str) else None

    return ColumnSpec(
        name=field.name,
        data_type=NativeType(field.dataType),
        nullable=field.nullable,
        comment=text(_COMMENT),
        generated=text(_GENERATION),
        default=text(_DEFAULT),
        identity=_declared_identity(metadata),
    )


def _declared_identity(metadata: Mapping[str, object]) -> Identity | None:
    start, step = metadata.get(f"{_IDENTITY}.start"), metadata.get(f"{_IDENTITY}.step")
    if not isinstance(start, int) or not isinstance(step, int):
        return None
    return Identity(not metadata.get(f"{_IDENTITY}.allowExplicitInsert", False), start, step)


def _unwrapped(cols: tuple[object, ...]) -> tuple[object, ...]:
    """The columns; one Scala list of them, which comes as an object of py4j, as a Python tuple."""
    if len(cols) == 1 and type(cols[0]).__module__.partition(".")[0] == "py4j":
        sequence = cast("_Sequence", cols[0])
        return tuple(sequence.apply(index) for index in range(sequence.size()))
    return cols


class _Sequence(Protocol):
    """The part of a Scala list that is used here."""

    def size(self) -> int: ...

    def apply(self, index: int) -> str: ...
