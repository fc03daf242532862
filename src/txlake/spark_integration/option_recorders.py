"""Mix-ins of readers and writers that record options, format and schema for the lake.

Each value is also passed to Spark's own reader or writer, which may have to take over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from txlake.spark_integration.lake_binding import LakeBinding
from txlake.spark_integration.options import is_lake_format

_DEFAULT_FORMAT = "spark.sql.sources.default"

if TYPE_CHECKING:

    class _Plain:
        """The methods of Spark's readers and writers that the mix-ins override."""

        def format(self, source: str) -> Any: ...
        def option(self, key: str, value: Any) -> Any: ...
        def options(self, **options: Any) -> Any: ...
        def schema(self, schema: StructType | str) -> Any: ...
else:
    _Plain = object


class OptionsRecorder(_Plain):
    """Records options in `_lake_options`."""

    _lake_options: dict[str, object]

    def option(self, key: str, value: Any) -> Any:
        """Set one option."""
        self._lake_options[key] = value
        return super().option(key, value)

    def options(self, **options: Any) -> Any:
        """Set several options."""
        self._lake_options.update(options)
        return super().options(**options)

    def _lake_forward_option(self, key: str, value: Any) -> None:
        """Set an option at Spark alone, without recording it."""
        super().option(key, value)


class FormatRecorder(OptionsRecorder):
    """Records options, and the format in `_lake_source`; None where no format was set."""

    _lake_binding: LakeBinding
    _lake_source: str | None

    def format(self, source: str) -> Any:
        """Set the format; `delta` and `txlake` aren't passed to Spark."""
        self._lake_source = source
        return self if is_lake_format(source) else super().format(source)

    def _lake_format(self, format: str | None) -> str | None:
        """Return the format: the argument, else the recorded one, else Spark's default setting;
        None without any.
        """
        return (
            format or self._lake_source or self._lake_binding.spark.conf.get(_DEFAULT_FORMAT, None)
        )

    def _lake_forward_format(self) -> None:
        """Pass the lake's format to Spark after all: tables of another catalog may have it."""
        if self._lake_source is not None and is_lake_format(self._lake_source):
            super().format(self._lake_source)


class SchemaRecorder(FormatRecorder):
    """Records options, the format and the requested schema."""

    _lake_schema: StructType | str | None

    def schema(self, schema: StructType | str) -> Any:
        """Set the requested schema, which has to equal a Delta table's own when it is read."""
        self._lake_schema = schema
        return super().schema(schema)


def flatten_names(cols: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names of `f("a", "b")` or `f(["a", "b"])` as one tuple."""
    if len(cols) == 1 and isinstance(cols[0], list | tuple):
        return tuple(cols[0])
    return cols
