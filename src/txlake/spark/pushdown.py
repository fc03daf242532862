"""Push-down: which columns must not be used to skip row groups, and hiding them from filters.

Spark passes a query's filters to Parquet, which skips row groups by their bounds and dictionaries.
For some columns that loses rows of the result:

- floating-point numbers: most writers omit NaN from the bounds, and Spark orders NaN above all
  numbers; a filter for 0.0 skips a dictionary with -0.0, which is equal;
- dates and timestamps: the filter's value becomes a java.sql.Date or Timestamp, whose calendar
  lacks 1582-10-05 to 14 and which changes some times before 1900; for a file with timestamps in
  milliseconds it is truncated to milliseconds;
- columns widened to long or decimal: the value may overflow the narrower type of older files;
- columns found by id: Spark looks a filter's column up by name, which may be another column's.

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
from txlake.local.types import quote
from txlake.log.predicate_nodes import Comparison, Operator, Or
from txlake.log.skipping import may_match
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add
from txlake.protocol.type_widening import TYPE_CHANGES
from txlake.protocol.types import Field, Primitive, Struct

_Path = tuple[str, ...]

NO_FILTERS: Mapping[str, str] = {
    f"parquet.filter.{level}.enabled": "false"
    for level in ("stats", "dictionary", "bloom", "columnindex", "record-level")
}
"""The options of a reader with which Parquet skips nothing, whatever filters it is given."""

# A filter on records, if the session enables it, treats 0.0 and -0.0 as different values.
_NO_RECORD_FILTER: Mapping[str, str] = {
    name: value for name, value in NO_FILTERS.items() if "record" in name
}
_GENERATED_NAME = re.compile(r"col-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, or a field of nested structs, that Spark's filters may name.

    `logical` and `physical` are its paths; `widened`: whether its type was widened.
    """

    logical: _Path
    physical: _Path
    type: Primitive
    widened: bool


@dataclass(frozen=True, slots=True, order=True)
class Unfiltered:
    """Leaf columns that no filter may reach in some files, by physical path in order."""

    paths: tuple[_Path, ...] = ()

    def columns(self, names: Sequence[str]) -> list[Column | str]:
        """Return the columns with these physical names, with these leaves hidden from filters.

        Values stay as they are: greatest(x, x) is x, and Spark pushes no filter through it. Other
        fields of a struct can still be filtered.
        """
        inner: dict[str, list[_Path]] = {}
        for path in self.paths:
            inner.setdefault(path[0], []).append(path[1:])
        return [_hide_leaves(name, inner[name]) if name in inner else quote(name) for name in names]


def _hide_leaves(name: str, paths: Sequence[_Path]) -> Column:
    """Return a column, under its name, with the leaves at these paths hidden; () hides it all."""
    column = F.col(quote(name))
    for path in paths:
        leaf = F.col(".".join(map(quote, (name, *path))))
        value = F.greatest(leaf, leaf)
        column = column.withField(".".join(map(quote, path)), value) if path else value
    return column.alias(name)


class FilterSafety:
    """Determines which leaf columns filters may reach, for each file of one scan."""

    def __init__(self, snapshot: Snapshot, files: pa.Table) -> None:
        """Take the scan's `files`, as `Snapshot.select` returns them."""
        partitions = {name.lower() for name in snapshot.partition_columns}
        columns = [item for item in snapshot.schema if item.name.lower() not in partitions]
        leaves = list(_leaves(columns, (), ()))
        self._snapshot, self._files = snapshot, files
        self._widened = frozenset(leaf.physical for leaf in leaves if leaf.widened)
        self._inexact = frozenset(
            leaf.physical for leaf in leaves if leaf.type.name in ("float", "double", "timestamp")
        )
        self._dates = [leaf for leaf in leaves if leaf.type.name == "date"]
        self._has_foreign_names = snapshot.column_mapping_mode == "id" and not all(
            _GENERATED_NAME.fullmatch(part) for leaf in leaves for part in leaf.physical
        )

    @property
    def options(self) -> Mapping[str, str]:
        """The reader options that the files need, in addition to hidden columns."""
        return NO_FILTERS if self._has_foreign_names else _NO_RECORD_FILTER

    def unfiltered(self, ordinal: int, add: Add) -> Unfiltered:
        """Return the leaves to hide from filters in the file with this ordinal.

        No leaf is hidden where `options` make Parquet skip nothing.
        """
        if self._has_foreign_names:
            return Unfiltered()
        hidden = self._widened
        if (self._inexact or self._dates) and not is_filter_safe(add):
            hidden |= self._inexact
            if self._dates and self._may_have_early_dates[ordinal]:
                hidden |= {leaf.physical for leaf in self._dates}
        return Unfiltered(tuple(sorted(hidden)))

    @cached_property
    def _may_have_early_dates(self) -> list[bool]:
        """Whether each file may have early dates, by its statistics, in the order of the files."""
        snapshot = self._snapshot
        early = Or(
            tuple(Comparison(leaf.logical, Operator.LESS, SAME_DATES_FROM) for leaf in self._dates)
        )
        matches = may_match(early, self._files, snapshot.schema, snapshot.partition_columns)
        verdicts: list[bool] = matches.to_pylist()
        return verdicts


def _leaves(items: Iterable[Field], logical: _Path, physical: _Path) -> Iterator[_Leaf]:
    """Yield the columns of primitive types, and such fields of structs, that filters can name."""
    for item in items:
        path, physical_path = (*logical, item.name), (*physical, item.physical_name)
        if isinstance(item.type, Struct):
            yield from _leaves(item.type, path, physical_path)
        elif isinstance(item.type, Primitive):
            yield _Leaf(path, physical_path, item.type, _is_widened(item, item.type))


def _is_widened(item: Field, data_type: Primitive) -> bool:
    """Return whether the column's type was changed and is bigint or decimal now.

    A filter's value may then overflow the narrower type of older files.
    """
    return TYPE_CHANGES in item.metadata and (
        data_type.name == "long" or data_type.decimal is not None
    )
