"""The data plane of rows in this process: `commit.data_plane` without Spark.

Owns the wiring, and the views that statements name; the work on rows has its own modules here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.rows import changes, merging, queries
from tests.simulation.rows.files import RowAccess
from tests.simulation.rows.frames import RowColumn, RowFrame, frame_of, frame_of_arrow
from tests.simulation.rows.scopes import ColumnName, Rows, Scope
from tests.simulation.rows.values import LONG
from txlake.commit.data_plane import ScanLineage, TableData
from txlake.commit.identities import Identities, LocalIdentities
from txlake.commit.table_log import TableLog
from txlake.local import plain_rows
from txlake.local.caller_rows import as_arrow, schema_of
from txlake.log.predicates import Predicate
from txlake.log.snapshot import Snapshot
from txlake.log.text_rules import DEFAULT_RULES, TextRules
from txlake.log.time_zones import UTC_ZONE, TimeZone
from txlake.ports import Store, System
from txlake.protocol.types import DataType, Struct
from txlake.settings import Settings
from txlake.spark import constants, view_columns, whole_partitions
from txlake.spark import merge as of_spark
from txlake.spark.probe import SparkProbe
from txlake.sql.statements import (
    ChangeRange,
    Expression,
    Reference,
    SqlText,
    TimeTravel,
    ViewSchema,
)

_MARKER = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def _no_spark(*_: object, **__: object) -> Any:
    raise AssertionError("there is no Spark here")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable(RowAccess):
    """`TableData` on rows."""

    delete = changes.delete
    update = changes.update
    append = changes.append
    overwrite = changes.overwrite
    overwrite_partitions = changes.overwrite_partitions
    replace_where = changes.replace_where
    replace_using = _no_spark
    replace_on = _no_spark
    to_frame = changes.to_frame
    with_constants = changes.with_constants
    constants = changes.constants
    write_changes = changes.write_changes
    changed_rows = _no_spark
    differing_rows = _no_spark
    merge = merging.merge
    merge_read = of_spark.target_read
    compact = changes.compact
    zorder = changes.zorder
    cluster = changes.cluster
    rewrite = changes.rewrite
    rearranged = changes.rearranged
    files_of_partitions = whole_partitions.files_of_partitions
    plain_rows = plain_rows.plain_rows

    def few_rows(self, files: pa.Table, predicate: Predicate) -> Any:
        return self.scan(files)

    def violating_row(self, condition: str) -> Mapping[str, object] | None:
        frame: Any = self.qualified(self.scan(self.snapshot.select(None)), None)
        is_match = queries.condition(condition, Scope(frame.content.names), {})
        found = (row for row in frame.content.rows if not is_match(row))
        first = next(found, None)
        return None if first is None else dict(zip(frame.columns, first, strict=False))


@dataclass(slots=True, kw_only=True)
class RowPlane:
    """`DataPlane` on rows.

    Attributes:
        spark_settings: the settings of the absent Spark session.
    """

    settings: Settings
    store_at: Callable[[str], Store]
    spark_settings: Mapping[str, str]
    _views: dict[str, Rows] = field(default_factory=dict)

    @property
    def spark(self) -> Any:
        return _no_spark()

    @property
    def time_zone(self) -> TimeZone:
        return UTC_ZONE

    @property
    def is_started(self) -> bool:
        return True

    @property
    def text_rules(self) -> TextRules:
        return DEFAULT_RULES

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()

    def running(self, on_spark: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def row_probe(self, table: Callable[[], TableData]) -> SparkProbe:
        return SparkProbe(table)

    def record_read(self, log: TableLog, version: int) -> None: ...

    def with_lineage(self, frame: Any, lineage: ScanLineage) -> Any:
        return frame

    def reads_view(self, frame: Any, mark: str) -> bool:
        return False

    def with_view_columns(self, view: str, frame: Any, schema: ViewSchema) -> Any:
        return view_columns.with_view_columns(_no_spark, view, frame, schema)

    def missing_table(self, error: BaseException) -> None:
        return None

    def setting(self, key: str, default: str) -> str:
        return self.spark_settings.get(key, default)

    def settings_held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def forget_settings(self) -> None: ...

    def table_defaults(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None: ...

    def table(
        self,
        snapshot: Snapshot,
        store: Store,
        *,
        system: System,
        name: str | None,
        allowed: Callable[[], Iterable[str]],
        column_of: Callable[[Expression], Any] | None = None,
        identities: Identities | None = None,
        rules: TextRules | None = None,
    ) -> RowTable:
        manifests: Any = None
        return RowTable(
            start=_no_spark,
            manifests=manifests,
            system=system,
            settings=self.settings,
            snapshot=snapshot,
            store=store,
            allowed=allowed,
            column_of=column_of or self._plain,
            name=name,
            identities=identities or LocalIdentities(),
            rules=rules or DEFAULT_RULES,
            store_at=self.store_at,
        )

    def _plain(self, expression: Expression) -> Any:
        return self.column(expression, lambda _: None)

    def column(self, expression: Expression, view: Callable[[Reference], str | None]) -> Any:
        assert isinstance(expression, SqlText), "expressions are SQL here"
        return RowColumn(expression.rewritten(view), self._views)

    def timestamp_ms(self, travel: TimeTravel) -> int:
        return constants.timestamp_ms(travel, lambda: self.time_zone, _no_spark)

    def constant_range(self, requested: ChangeRange) -> ChangeRange:
        return constants.constant_range(requested, _no_spark)

    def type_of(self, text: str, schema: Struct) -> DataType:
        names = tuple(ColumnName(item.name, item.type) for item in schema)
        return queries.expression(text, Scope(names), {}).type

    def relations(self, text: str) -> None:
        return None

    def query(self, text: str, frames: Mapping[str, Any]) -> Any:
        tables = {**self._views, **{name: frame.content for name, frame in frames.items()}}
        return RowFrame(queries.run(_MARKER.sub(_unmarked, text) if frames else text, tables))

    def make_view(self, name: str, frame: Any) -> None:
        self._views[name] = frame.content

    def drop_view(self, name: str) -> None:
        self._views.pop(name, None)

    def spark_relation(self, name: str) -> None:
        return None

    def temporary_views(self, names: Collection[str] | None = None) -> Collection[str]:
        return ()

    def files(self, file_format: str, options: Mapping[str, str], urls: Sequence[str]) -> Any:
        assert (file_format, options) == ("PARQUET", {}), "only plain Parquet is known here"
        tables = []
        for url in urls:
            folder, _, name = url.rpartition("/")
            data = self.store_at(folder).get(unquote(name))
            tables.append(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False))
        return frame_of_arrow(pa.concat_tables(tables))

    def caller_rows(self, frame: object) -> pa.Table:
        table = as_arrow(frame)
        assert table is not None, "only rows that this process holds are known here"
        return table

    def frame(self, schema: Struct, rows: Sequence[tuple[object, ...]]) -> Any:
        return frame_of(rows, schema)

    def schema_of(self, rows: Any) -> Struct:
        if isinstance(rows, pa.Table):
            return schema_of(rows)
        found: Rows = rows.content
        return found.schema

    def counts(self, counts: Mapping[str, int]) -> Any:
        names = tuple(ColumnName(name, LONG) for name in counts)
        return RowFrame(Rows(names, [tuple(counts.values())]))

    def nothing(self) -> Any:
        return frame_of([], Struct(()))


def _unmarked(found: re.Match[str]) -> str:
    return f"`{found[1]}`" if found[1] else found[0][0]
