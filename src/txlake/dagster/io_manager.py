"""Dagster's IO manager on a lake: an asset is a table, an input is the table's rows.

A conflict is a step that Dagster runs again. Source: Dagster's IOManager, and the metadata that its
IO managers of databases take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dagster import (
    AssetExecutionContext,
    ConfigurableIOManager,
    DagsterInvariantViolationError,
    DagsterRun,
    InputContext,
    MultiPartitionsDefinition,
    OpExecutionContext,
    OutputContext,
    PartitionsDefinition,
    RetryRequested,
    TableColumn,
    TableSchema,
    TimeWindowPartitionsDefinition,
)

import txlake
import txlake.dbapi
from txlake.conflict.evidence import is_futile
from txlake.dagster.partitions import Window, all_of, any_of, condition
from txlake.errors import Conflict, InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.lake.lake import LakeSession
from txlake.local.caller_rows import as_arrow
from txlake.protocol.type_text import quoted_text, short_text
from txlake.protocol.types import from_arrow_schema
from txlake.sql.statements.names import quoted

if TYPE_CHECKING:
    import polars
    import pyarrow as pa
    from pyspark.sql import DataFrame

_Context: TypeAlias = InputContext | OutputContext
Types = Mapping[str, str]
_PER_RUN = "run"
_RUN_KEPT_MS = 7 * 86_400_000
_OPTIONS = ("partition_by", "overwrite_schema", "merge_schema")
_LOADED = "pandas.DataFrame, polars.DataFrame, polars.LazyFrame, pyarrow.Table or Spark's DataFrame"


@dataclass(frozen=True)
class _Place:
    """An asset's table, and the metadata of the asset's definition."""

    database: str
    name: str
    metadata: Mapping[str, Any]

    @property
    def text(self) -> str:
        return f"{quoted(self.database, always=True)}.{quoted(self.name, always=True)}"


class TxlakeIOManager(ConfigurableIOManager):  # type: ignore[misc, unused-ignore]
    """Keeps assets as tables of a lake in the step's process.

    The table is named as the asset, its database as the asset's key prefix, metadata `schema`, or
    `database`. An asset's metadata may have `mode` ("overwrite", or "append"), `partition_expr`
    (the column of its partitions, or a dictionary of columns by dimension), and arguments of
    `lake.write`: partition_by, overwrite_schema, merge_schema. An input's may have `columns`.

    A conflict, an unreachable store or an unknown outcome raises RetryRequested; other errors are
    the lake's. Rows that are appended are appended once per step of a run.

    Attributes:
        warehouse, catalog, storage_options, isolation: as `txlake.connect` has them.
        database: of assets without a key prefix.
        branch: the branch that assets are written to and read from, made when it isn't there;
            "run" for one of each run, which `publish` publishes; None for the lake itself.
        max_retries: how often a step is run again; 0 raises the error itself, which leaves it to
            the asset's RetryPolicy.
        retry_wait_s: the seconds before that.
    """

    warehouse: str
    catalog: str | None = None
    storage_options: dict[str, str] | None = None
    isolation: str | None = None
    database: str = "default"
    branch: str | None = None
    max_retries: int = 3
    retry_wait_s: float = 1.0

    def handle_output(self, context: OutputContext, obj: object) -> None:
        place = self._place(context, context.definition_metadata)
        mode = place.metadata.get("mode", "overwrite")
        if mode not in ("overwrite", "append"):
            raise InvalidRequest(f"{place.text}: mode={mode!r}: expected 'overwrite' or 'append'")
        rows = obj if _is_of_spark(type(obj)) else as_arrow(obj)
        if rows is None:
            raise InvalidRequest(
                f"{place.text}: expected rows of pandas, polars, pyarrow or Spark, found "
                f"{type(obj).__qualname__}; annotate an asset that returns no rows with -> None"
            )
        types = _types_of(rows)
        options = {name: place.metadata[name] for name in _OPTIONS if name in place.metadata}
        with self._retrying(context):
            branch = self._branch_of(context)
            self._define(place)
            if mode == "append":
                options["app_id"] = f"dagster/{context.run_id}/{context.step_key}/{context.name}"
                options["app_version"] = 0
            elif context.has_asset_partitions:
                found = self._table_types(place, branch) or types
                options["replace_where"] = _condition(context, place.metadata, found)
            with self._lake(branch) as lake:
                with lake.transaction() as tx:
                    tx.write(rows, place.text, mode, **options)
                version = _version_made(lake, tx.id)
        context.add_output_metadata(
            {
                "dagster/table_name": f"{place.database}.{place.name}",
                "dagster/column_schema": TableSchema(
                    [TableColumn(name, kind) for name, kind in types.items()]
                ),
                **_counts(context, rows, mode),
                **({} if version is None else {"version": version}),
                **({} if branch is None else {"branch": branch}),
            }
        )

    def load_input(self, context: InputContext) -> object:
        upstream = context.upstream_output
        metadata = None if upstream is None else upstream.definition_metadata
        place = self._place(context, metadata)
        kind = context.dagster_type.typing_type
        as_kind = _LOADERS.get(_name_of(kind))
        if as_kind is None and not _is_of_spark(kind):
            raise InvalidRequest(
                f"{place.text}: expected an input that is annotated with {_LOADED}, found "
                f"{getattr(kind, '__qualname__', kind)}"
            )
        columns = (context.definition_metadata or {}).get("columns")
        with self._retrying(context):
            branch = self._branch_of(context)
            where = None
            if context.has_asset_partitions:
                types = self._table_types(place, branch)
                if types is None:
                    raise InvalidRequest(
                        f"there is no table {place.text}; materialize the asset first"
                    )
                where = _condition(context, place.metadata, types)
            if as_kind is None:
                with self._lake(branch) as lake:
                    return lake.read(place.text, where=where, columns=columns)
            named = "*" if columns is None else ", ".join(quoted(c, always=True) for c in columns)
            query = f"SELECT {named} FROM {place.text}"
            return as_kind(self._rows(query + (f" WHERE {where}" if where else ""), branch))

    def publish(self, context: AssetExecutionContext | OpExecutionContext) -> None:
        """Publish the branch of an asset's or op's run, with all tables at one instant.

        Raises as `Branch.publish`; a conflict leaves the branch, and the run has to be run anew.
        """
        if self.branch != _PER_RUN:
            raise InvalidRequest(f"publish: expected branch='run', found {self.branch!r}")
        with self._connect() as lake, lake.branch(_branch_of_run(context.run)) as branch:
            branch.publish()

    def _place(self, context: _Context, metadata: Mapping[str, Any] | None) -> _Place:
        """Return an asset's table. Raises InvalidRequest for what is no asset, and for a key prefix
        of which the database isn't clear.
        """
        if not context.has_asset_key:
            raise InvalidRequest(
                f"{context.name!r}: only assets are tables of a lake; give outputs of ops another "
                "IO manager"
            )
        *prefix, name = context.asset_key.path
        database = (metadata or {}).get("schema")
        if database is None and len(prefix) > 1:
            raise InvalidRequest(
                f"asset {'/'.join(context.asset_key.path)}: expected a key prefix of one part, the "
                "database; name the database by the asset's metadata 'schema'"
            )
        return _Place(database or (prefix[0] if prefix else self.database), name, metadata or {})

    def _branch_of(self, context: _Context) -> str | None:
        """Return the branch to work on, which is made if it isn't there; None for main."""
        name = self.branch
        if name == _PER_RUN:
            try:
                name = _branch_of_run(context.step_context.dagster_run)
            except DagsterInvariantViolationError:
                return None  # a value that is loaded outside of runs
        if name is not None:
            kept_ms = _RUN_KEPT_MS if self.branch == _PER_RUN else None
            with self._connect() as lake:
                lake.branch(name, create=True, retention_ms=kept_ms).close()
        return name

    def _connect(self) -> txlake.Lake:
        return txlake.connect(
            self.warehouse,
            catalog=self.catalog,
            storage_options=self.storage_options,
            isolation=self.isolation,
        )

    @contextmanager
    def _lake(self, branch: str | None) -> Iterator[LakeSession]:
        """Open the lake, or its branch, for the block."""
        with self._connect() as lake:
            yield lake if branch is None else lake.branch(branch)

    def _rows(self, query: str, branch: str | None = None) -> pa.Table:
        """Return a statement's rows, without Spark if the driver can read them."""
        try:
            with txlake.dbapi.connect(
                self.warehouse,
                catalog=self.catalog,
                storage_options=self.storage_options,
                isolation=self.isolation,
                autocommit=True,
            ) as connection:
                if branch is not None:
                    connection.execute(f"USE BRANCH {quoted(branch, always=True)}")
                cursor = connection.execute(query)
                return cursor.fetch_arrow_table() if cursor.description else None
        except txlake.dbapi.Error as error:
            if isinstance(error.__cause__, TxlakeError):
                raise error.__cause__ from None
            raise

    def _define(self, place: _Place) -> None:
        """Create the database if it isn't there."""
        self._rows(f"CREATE SCHEMA IF NOT EXISTS {quoted(place.database, always=True)}")

    def _table_types(self, place: _Place, branch: str | None) -> Types | None:
        """Return the types of a table's columns by name; None if it isn't there."""
        database = quoted(place.database, always=True)
        tables = self._rows(f"SHOW TABLES IN {database} LIKE {quoted_text(place.name)}", branch)
        if not tables.num_rows:
            return None
        return _types_of(self._rows(f"SELECT * FROM {place.text} LIMIT 0", branch))

    @contextmanager
    def _retrying(self, context: _Context) -> Iterator[None]:
        """Let Dagster run the step again after an error of the block that another try can win."""
        try:
            yield
        except (Conflict, Unavailable, OutcomeUnknown) as error:
            if self.max_retries < 1 or (isinstance(error, Conflict) and is_futile(error)):
                raise
            context.log.warning(str(error))
            raise RetryRequested(self.max_retries, self.retry_wait_s) from error


def _branch_of_run(run: DagsterRun) -> str:
    """Return the name of the branch of a run, which those share that run its failed steps again."""
    return f"dagster/{run.root_run_id or run.run_id}"


def _is_of_spark(kind: object) -> bool:
    return _name_of(kind) == "pyspark.DataFrame"


def _name_of(kind: object) -> str:
    """Return a class's name with the name of its library."""
    library = getattr(kind, "__module__", "").partition(".")[0]
    return f"{library}.{getattr(kind, '__qualname__', '')}"


def _types_of(rows: pa.Table | DataFrame) -> Types:
    """Return the types of the columns, by name."""
    if _is_of_spark(type(rows)):
        return dict(cast("DataFrame", rows).dtypes)
    return {item.name: short_text(item.type) for item in from_arrow_schema(rows.schema).fields}


def _version_made(lake: LakeSession, transaction: str) -> int | None:
    """Return the table's version that a transaction made; None if it changed nothing."""
    for row in lake.view("txlake.commits").to_pylist():
        if row["transaction_id"] == transaction:
            return int(row["version"])
    return None


def _counts(context: OutputContext, rows: object, mode: str) -> Mapping[str, int]:
    """Return the metadata on the rows that were written; nothing for Spark, which counts later.

    Dagster's own names are for all rows of a table, and for those of one partition.
    """
    if _is_of_spark(type(rows)):
        return {}
    written = cast("pa.Table", rows).num_rows
    if mode == "append":
        return {"rows": written}
    if not context.has_asset_partitions:
        return {"rows": written, "dagster/row_count": written}
    if len(context.asset_partition_keys) == 1:
        return {"rows": written, "dagster/partition_row_count": written}
    return {"rows": written}


def _condition(context: _Context, metadata: Mapping[str, Any], types: Types) -> str:
    """Return the condition for the rows of a context's partitions."""
    definition, keys = context.asset_partitions_def, context.asset_partition_keys
    asked = metadata.get("partition_expr")
    if isinstance(definition, MultiPartitionsDefinition):
        parts = {part.name: part.partitions_def for part in definition.partitions_defs}
        if not isinstance(asked, Mapping) or set(asked) != set(parts):
            raise _unknown_column(context, f"a dictionary with a column for each of {list(parts)}")
        return any_of(
            [
                all_of(
                    _of_keys(asked[name], types, parts[name], [part])
                    for name, part in definition.get_partition_key_from_str(
                        key
                    ).keys_by_dimension.items()
                )
                for key in keys
            ]
        )
    if not isinstance(asked, str):
        raise _unknown_column(context, "a column")
    return _of_keys(asked, types, definition, keys)


def _unknown_column(context: _Context, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"asset {'/'.join(context.asset_key.path)} has partitions: expected {expected} as its "
        "metadata 'partition_expr'"
    )


def _of_keys(column: str, types: Types, definition: PartitionsDefinition, keys: list[str]) -> str:
    windows: Sequence[Window] = ()
    if isinstance(definition, TimeWindowPartitionsDefinition):
        found = [definition.time_window_for_partition_key(key) for key in keys]
        windows = tuple((window.start, window.end) for window in found)
    return condition(column, types, keys, windows)


def _polars(rows: pa.Table) -> polars.DataFrame:
    import polars

    return cast("polars.DataFrame", polars.from_arrow(rows))


_LOADERS: Mapping[str, Callable[[pa.Table], object]] = {
    "pandas.DataFrame": lambda rows: rows.to_pandas(),
    "polars.DataFrame": _polars,
    "polars.LazyFrame": lambda rows: _polars(rows).lazy(),
    "pyarrow.Table": lambda rows: rows,
}
