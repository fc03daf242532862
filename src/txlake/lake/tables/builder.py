"""`DeltaTableBuilder`: collects a table's definition call by call, then creates the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from pyspark.sql.types import DataType, LongType, StructField, StructType

from txlake.errors import InvalidRequest
from txlake.lake.tables.arguments import require_string, require_strings, type_error
from txlake.lake.tables.errors import (
    ArgumentValueRefused,
    raise_parse_error,
    raises_delta_spark_errors,
    refusal,
    unsupported_error,
)
from txlake.lake.tables.executor import Executor, lake_executor
from txlake.lake.tables.spark_catalog import create_named, has_delta_catalog
from txlake.protocol.properties import canonical_key
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import Primitive
from txlake.sql.statements import (
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

if TYPE_CHECKING:
    from txlake.lake.tables.table import DeltaTable

_GENERATION = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_IDENTITY = "delta.identity"
_COMMENT = "comment"


@dataclass
class IdentityGenerator:
    """The numbers of an identity column: `start`, then one more `step` for each row."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """The definition of a new table, made by `DeltaTable.create` and its variants.

    A name, a location or both must be given before `execute`. Every call changes this builder and
    returns it.
    """

    def __init__(
        self,
        executor: Executor,
        mode: CreateMode,
        open_table: Callable[[Executor, Table, TableName | None], DeltaTable],
    ) -> None:
        self._executor = executor
        self._mode = mode
        self._open_table = open_table
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
            raise type_error("_jbuilder must be this builder.", builder)

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """Set the table's name, `table` or `database.table`; or ``delta.`/path` ``.

        Raises a TypeError for a name that isn't text.
        """
        self._identifier = require_string(identifier, "Identifier")
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """Set the folder or URL of the table. Raises a TypeError if it isn't text."""
        self._location = require_string(location, "Location")
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """Set the table's comment. Raises a TypeError if it isn't text."""
        self._comment = require_string(comment, "Table comment")
        return self

    @raises_delta_spark_errors
    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """Add a column.

        Args:
            dataType: a type of PySpark, or its DDL text.
            generatedAlwaysAs: the SQL expression that computes the column, or an identity.
            generatedByDefaultAs: an identity for rows that give the column no value.

        Raises a TypeError for arguments of another type, a ValueError for both kinds of generation
        at once or an identity of step 0, a ParseException for a text that is no type, an
        UnsupportedOperationException for an identity that isn't a bigint.
        """
        name = require_string(colName, "Column name")
        if not isinstance(dataType, str | DataType):
            raise type_error("Column data type must be str or DataType.", dataType)
        if not isinstance(nullable, bool):
            raise type_error("Column nullable must be bool.", nullable)
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
            raise type_error(
                "Generated always as expression must be str or IdentityGenerator.",
                generatedAlwaysAs,
            )
        if isinstance(generatedByDefaultAs, IdentityGenerator):
            identity = _identity(generatedByDefaultAs, False, name, dataType, is_long)
        elif generatedByDefaultAs is not None:
            raise type_error(
                "Generated by default expression must be IdentityGenerator.", generatedByDefaultAs
            )
        if comment is not None:
            require_string(comment, "Column comment")
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

    @raises_delta_spark_errors
    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder:
        """Add the columns of a schema, with the comments, generation and defaults in its metadata.

        Raises a TypeError for what is neither a schema nor a list of its fields.
        """
        fields: object = cols.fields if isinstance(cols, StructType) else cols
        if not isinstance(fields, list):
            raise type_error("Schema must be StructType or a list of StructField.", cols)
        for field in fields:
            if not isinstance(field, StructField):
                raise type_error("Column in existing schema must be StructField.", field)
        self._columns += map(_column_spec, fields)
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """Set the partition columns, one by one or as one list.

        Raises a TypeError for a name that isn't text.
        """
        self._partition_by = require_strings(_from_scala(cols), "Partitioning column")
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """Set the clustering columns, one by one or as one list.

        Raises a TypeError for a name that isn't text.
        """
        self._cluster_by = require_strings(_from_scala(cols), "Clustering column")
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """Set a table property. Raises a TypeError for what isn't text."""
        arguments: tuple[object, ...] = (key, value)
        if not all(isinstance(argument, str) for argument in arguments):
            raise type_error("Key and value of property must be string.", *arguments)
        self._properties[key] = value
        return self

    @raises_delta_spark_errors
    def execute(self) -> DeltaTable:
        """Create or replace the table.

        A name belongs to the session's own catalog if that can hold Delta tables, else to the lake
        that is open in the Spark session. A table of the session's catalog without a location is
        managed by it: DROP TABLE deletes its files. If `create` names a table that already exists
        at its location, and defines nothing else, the table stays as it is and gets the name.

        Raises an AnalysisException if the table exists or doesn't, against the mode, and for an
        invalid definition; nothing is written then. Raises a ParseException for a text that is no
        name, a Conflict if another writer creates the table at the same time, and an
        UnsupportedOperationException for what txlake doesn't write.
        """
        if self._partition_by and self._cluster_by:
            raise refusal(
                "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
                "a table is either clustered or partitioned: leave out partitionedBy or clusterBy",
            )
        table = self._table()
        if isinstance(table, TableName):
            spark = self._executor.spark
            if has_delta_catalog(spark, table):
                place = create_named(spark, table, self._location, self._mode, self._write)
                return self._open_table(self._executor, place, table)
            self._executor = lake_executor(self._executor)
        self._write(table, self._mode)
        return self._open_table(self._executor, table, None)

    def _table(self) -> Table:
        """Return the name or path of the new table; a name counts before a location.

        Raises an AnalysisException without either, and for a path beside another location; a
        ParseException for a text that is no name.
        """
        if self._identifier is None:
            if self._location is None:
                raise refusal(
                    "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION",
                    "the new table needs a name or a location: call tableName or location",
                )
            return TablePath(self._location)
        try:
            table = table_of(self._identifier)
        except InvalidRequest as error:
            raise_parse_error(error)
        if (
            isinstance(table, TablePath)
            and self._location is not None
            and canonical_url(table.location) != canonical_url(self._location)
        ):
            raise refusal(
                "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH",
                f"the table's name {self._identifier} is a place, and its location is another: "
                f"{self._location}; leave one of the two out",
            )
        return table

    def _write(self, table: Table, mode: CreateMode) -> None:
        """Create or replace the table, unless the call only gives a name to an existing one."""
        location = self._location if isinstance(table, TableName) else None
        if mode == "create" and isinstance(table, TablePath) and self._is_only_naming(table):
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

    def _is_only_naming(self, location: TablePath) -> bool:
        """Return whether the call only names a table that exists, and has a name and a location.

        It has no columns, partitioning, clustering and properties then; a comment doesn't count.
        """
        is_defined = self._columns or self._partition_by or self._cluster_by or self._properties
        has_both = self._identifier is not None and self._location is not None
        return has_both and not is_defined and self._executor.exists(location)

    def _all_properties(self) -> tuple[tuple[str, str], ...]:
        properties = {canonical_key(key): value for key, value in self._properties.items()}
        return tuple(properties.items())


def _is_long(data_type: str | DataType) -> bool:
    """Return whether a type is bigint. Raises a ParseException for a text that is no type."""
    if isinstance(data_type, DataType):
        return isinstance(data_type, LongType)
    try:
        return parse_type(data_type) == Primitive("long")
    except InvalidRequest as error:
        raise_parse_error(error)


def _identity(
    generator: IdentityGenerator, always: bool, name: str, data_type: object, is_long: bool
) -> Identity:
    """Return an identity's definition. Raises a ValueError for step 0.

    Raises an UnsupportedOperationException if the column isn't bigint.
    """
    if generator.step == 0:
        raise ArgumentValueRefused(
            f"column {name}: an identity needs a step that is not 0, found {generator}"
        )
    if not is_long:
        raise unsupported_error(
            "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
            f"column {name}: an identity column's type must be bigint, found {data_type}",
        )
    return Identity(always, generator.start, generator.step)


def _column_spec(field: StructField) -> ColumnSpec:
    """Return the definition of a schema's field, with what its metadata says."""
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
    """Return the identity in a field's metadata; None without a start and a step."""
    start, step = metadata.get(f"{_IDENTITY}.start"), metadata.get(f"{_IDENTITY}.step")
    if not isinstance(start, int) or not isinstance(step, int):
        return None
    return Identity(not metadata.get(f"{_IDENTITY}.allowExplicitInsert", False), start, step)


def _from_scala(cols: tuple[object, ...]) -> tuple[object, ...]:
    """Return the columns as a Python tuple, also if they are one Scala list, an object of py4j."""
    if len(cols) == 1 and type(cols[0]).__module__.partition(".")[0] == "py4j":
        sequence = cast("_ScalaSequence", cols[0])
        return tuple(sequence.apply(index) for index in range(sequence.size()))
    return cols


class _ScalaSequence(Protocol):
    """The methods of a Scala list that are used here."""

    def size(self) -> int: ...

    def apply(self, index: int) -> str: ...
