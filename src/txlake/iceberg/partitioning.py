"""Partition specs by identity, and partition values as Iceberg has them.

Source: Iceberg's specification, "Partitioning", "Partition Evolution".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from txlake.protocol.partition_values import PartitionScalar, parse_value
from txlake.protocol.times import FarTime, micros_of
from txlake.protocol.types import Field, Primitive, Struct

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EXACT = Context(prec=76)  # Python's default rounds to 28 digits, a decimal has up to 38


@dataclass(frozen=True, slots=True)
class Specs:
    """A table's partition specs.

    Attributes:
        all: the specs, in the order of their ids.
        current_id: the id of the one that new files have.
        last_field_id: the highest id of a partition field.
    """

    all: tuple[PartitionSpec, ...] = ()
    current_id: int = 0
    last_field_id: int = PARTITION_FIELD_ID_START - 1

    @property
    def current(self) -> PartitionSpec:
        """The spec that new files have."""
        return next(spec for spec in self.all if spec.spec_id == self.current_id)


def partition_fields(schema: Struct, partition_columns: Sequence[str]) -> tuple[Field, ...]:
    """Return the partition columns in their order."""
    found = map(schema.find, partition_columns)
    return tuple(item for item in found if item is not None)


def next_specs(before: Specs, schema: Struct, partition_columns: Sequence[str]) -> Specs:
    """Return the specs of a table with these columns: a known spec where one has the same columns.

    Partition fields carry the present names of their columns, so that a renamed column leaves its
    old name free.
    """
    columns = partition_fields(schema, partition_columns)
    names = {item.column_id: item.name for item in schema}
    known = tuple(_renamed(spec, names) for spec in before.all)
    sources = [item.column_id for item in columns]
    for spec in known:
        if [each.source_id for each in spec.fields] == sources:
            return Specs(known, spec.spec_id, before.last_field_id)
    given = {each.source_id: each.field_id for spec in known for each in spec.fields}
    last = before.last_field_id
    fields: list[PartitionField] = []
    for item in columns:
        assert item.column_id is not None
        if item.column_id not in given:
            last += 1
            given[item.column_id] = last
        fields.append(
            PartitionField(
                source_id=item.column_id,
                field_id=given[item.column_id],
                transform=IdentityTransform(),
                name=item.name,
            )
        )
    added = PartitionSpec(*fields, spec_id=len(known))
    return Specs((*known, added), added.spec_id, last)


def _renamed(spec: PartitionSpec, names: Mapping[int | None, str]) -> PartitionSpec:
    fields = [
        each.model_copy(update={"name": names.get(each.source_id, each.name)})
        for each in spec.fields
    ]
    return PartitionSpec(*fields, spec_id=spec.spec_id)


def misses_source(specs: Specs, schema: Struct) -> bool:
    """Return whether a spec has a column that the schema lacks, so that readers can't bind it."""
    ids = {item.column_id for item in schema}
    return any(each.source_id not in ids for spec in specs.all for each in spec.fields)


def partition_record(values: Mapping[str, str | None], columns: Sequence[Field]) -> Record:
    """Return a file's partition from its texts in the log, by physical name.

    Raises CorruptTable for a text that is no value of its column.
    """
    return Record(
        *(
            _iceberg_value(parse_value(values.get(one.physical_name), one.type), one)
            for one in columns
        )
    )


def _iceberg_value(value: PartitionScalar, column: Field) -> object:
    """Return a value in Iceberg's representation: days and microseconds since 1970 for times."""
    if isinstance(value, datetime | FarTime):
        return micros_of(value)
    if isinstance(value, date):
        return value.toordinal() - _EPOCH_DAY
    if isinstance(value, Decimal) and isinstance(column.type, Primitive):
        _, scale = column.type.decimal or (38, 0)
        return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    return value
