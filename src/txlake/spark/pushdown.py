"""Columns by whose values Spark may not skip row groups, and how its filters are kept from them.

Spark gives the filters of a query to Parquet, which skips row groups by their bounds and
dictionaries. For some columns that loses rows of the result:

- floating-point numbers: most writers leave NaN out of the bounds, and to Spark NaN is the greatest
  number; a dictionary with -0.0 is skipped by a filter for 0.0, which is equal;
- dates and timestamps: the filter's value becomes a java.sql.Date or Timestamp, whose calendar
  lacks 1582-10-05 to 14 and which changes some times before 1900; for a file with timestamps in
  milliseconds it is cut to them;
- columns that were widened to long or decimal: the value may overflow the narrower type that older
  files have;
- columns found by their ids: Spark looks a filter's column up by name, which may be another one.

Source: Spark, `ParquetFilters`; parquet-java, `DictionaryFilter`; PARQUET-1246.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from txlake.datafiles.footers import SAME_DATES_FROM, is_filter_safe
from txlake.log.predicate_nodes import Comparison, Operator, Or
from txlake.log.skipping import may_match
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.type_widening import TYPE_CHANGES
from txlake.protocol.types import Field, Primitive, Struct
from txlake.spark.types import quote

_Path = tuple[str, ...]

NO_FILTERS: Mapping[str, str] = {
    f"parquet.filter.{level}.enabled": "false"
    for level in ("stats", "dictionary", "bloom", "columnindex", "record-level")
}
"""The options of a reader by which Parquet skips nothing, whatever filters it is given."""

# A filter on single records, where a session asks for one, takes 0.0 and -0.0 for two values.
_GROUPS_ALONE: Mapping[str, str] = {
    name: value for name, value in NO_FILTERS.items() if "record" in name
}
_GENERATED_NAME = re.compile(r"col-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, or a field of nested structs, that Spark's filters may name.

    `logical` and `physical` are its path; `widened`: it once had another type.
    """

    logical: _Path
    physical: _Path
    type: Primitive
    widened: bool


@dataclass(frozen=True, slots=True, order=True)
class Unfiltered:
    """The leaf columns, by physical path in order, that no filter may reach in some files."""

    paths: tuple[_Path, ...] = ()

    def columns(self, names: Sequence[str]) -> list[Column | str]:
        """The columns with these physical names, these leaves hidden from filters.

        Values stay as they are: the greatest of a value and itself is that value, and Spark pushes
        no filter through it. Other fields of a struct stay within the reach of filters.
        """
        inner: dict[str, list[_Path]] = {}
        for path in self.paths:
            inner.setdefault(path[0], []).append(path[1:])
        return [_hidden(name, inner[name]) if name in inner else quote(name) for name in names]


def _hidden(name: str, paths: Sequence[_Path]) -> Column:
    column = F.col(quote(name))
    for path in paths:
        leaf = F.col(".".join(map(quote, (name, *path))))
        value = F.greatest(leaf, leaf)
        column = column.withField(".".join(map(quote, path)), value) if path else value
    return column.alias(name)


class FilterSafety:
    """Which leaf columns filters may reach, file by file of one scan."""

    def __init__(self, snapshot: Snapshot, files: pa.Table) -> None:
        """`files` are those of the scan, as `Snapshot.select` gives them."""
        partitions = {name.lower() for name in snapshot.partition_columns}
        columns = [item for item in snapshot.schema if item.name.lower() not in partitions]
        leaves = list(_leaves(columns, (), ()))
        self._snapshot, self._files = snapshot, files
        self._widened = frozenset(leaf.physical for leaf in leaves if leaf.widened)
        self._inexact = frozenset(
            leaf.physical for leaf in leaves if leaf.type.name in ("float", "double", "timestamp")
        )
        self._dates = [leaf for leaf in leaves if leaf.type.name == "date"]
        self._by_other_names = snapshot.column_mapping_mode == "id" and not all(
            _GENERATED_NAME.fullmatch(part) for leaf in leaves for part in leaf.physical
        )

    @property
    def options(self) -> Mapping[str, str]:
        """What the reader of the files needs, beside the columns that are hidden."""
        return NO_FILTERS if self._by_other_names else _GROUPS_ALONE

    def unfiltered(self, ordinal: int, add: Add) -> Unfiltered:
        """The leaves that are hidden from filters in the file at that place of the scan."""
        if self._by_other_names:
            return Unfiltered()
        hidden = self._widened
        if (self._inexact or self._dates) and not is_filter_safe(add):
            hidden |= self._inexact
            if self._dates and self._may_have_early_dates[ordinal]:
                hidden |= {leaf.physical for leaf in self._dates}
        return Unfiltered(tuple(sorted(hidden)))

    @cached_property
    def _may_have_early_dates(self) -> list[bool]:
        """Of each file, by its statistics."""
        snapshot = self._snapshot
        early = Or(
            tuple(Comparison(leaf.logical, Operator.LESS, SAME_DATES_FROM) for leaf in self._dates)
        )
        found = may_match(early, self._files, snapshot.schema, snapshot.partition_columns)
        verdicts: list[bool] = found.to_pylist()
        return verdicts


def _leaves(items: Iterable[Field], logical: _Path, physical: _Path) -> Iterator[_Leaf]:
    """The columns of primitive types, and such fields of structs, that filters can name."""
    for item in items:
        path, in_files = (*logical, item.name), (*physical, item.physical_name)
        if isinstance(item.type, Struct):
            yield from _leaves(item.type, path, in_files)
        elif isinstance(item.type, Primitive):
            yield _Leaf(path, in_files, item.type, _is_widened(item, item.type))


def _is_widened(item: Field, data_type: Primitive) -> bool:
    """Whether files may hold the column in a type that lacks values of the table's type."""
    return TYPE_CHANGES in item.metadata and (
        data_type.name == "long" or data_type.decimal is not None
    )
