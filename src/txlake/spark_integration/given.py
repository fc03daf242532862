"""What readers and writers are given before they read or write: options, a format, a schema.

Owns that the lake keeps what Spark's own reader or writer is told too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from txlake.spark_integration.door import Door
from txlake.spark_integration.options import is_ours

_DEFAULT_FORMAT = "spark.sql.sources.default"

if TYPE_CHECKING:

    class _Plain:
        """The methods of Spark's readers and writers that stand behind these."""

        def format(self, source: str) -> Any: ...
        def option(self, key: str, value: Any) -> Any: ...
        def options(self, **options: Any) -> Any: ...
        def schema(self, schema: StructType | str) -> Any: ...
else:
    _Plain = object


class OptionsGiven(_Plain):
    """Keeps options; `_lake_given` are those so far."""

    _lake_given: dict[str, object]

    def option(self, key: str, value: Any) -> Any:
        """One option."""
        self._lake_given[key] = value
        return super().option(key, value)

    def options(self, **options: Any) -> Any:
        """Several options."""
        self._lake_given.update(options)
        return super().options(**options)

    def _lake_tell_option(self, key: str, value: Any) -> None:
        """Tells Spark alone an option, which nobody gave."""
        super().option(key, value)


class FormatGiven(OptionsGiven):
    """Keeps options and the format, None where none was given."""

    _lake_door: Door
    _lake_source: str | None

    def format(self, source: str) -> Any:
        """The format; of `delta` and `txlake` Spark isn't told."""
        self._lake_source = source
        return self if is_ours(source) else super().format(source)

    def _lake_format(self, format: str | None) -> str | None:
        """The format: the one given last, `format`, or Spark's default."""
        return format or self._lake_source or self._lake_door.spark.conf.get(_DEFAULT_FORMAT, None)

    def _lake_tell_format(self) -> None:
        """Tells Spark the lake's format too: tables of another catalog may have it."""
        if self._lake_source is not None and is_ours(self._lake_source):
            super().format(self._lake_source)


class SchemaGiven(FormatGiven):
    """Keeps options, the format and the schema that rows are wanted with."""

    _lake_wanted: StructType | str | None

    def schema(self, schema: StructType | str) -> Any:
        """The schema; a Delta table's own can't be another one."""
        self._lake_wanted = schema
        return super().schema(schema)


def flat(cols: tuple[Any, ...]) -> tuple[str, ...]:
    """Names given one by one, or as one list."""
    if len(cols) == 1 and isinstance(cols[0], list | tuple):
        return tuple(cols[0])
    return cols
