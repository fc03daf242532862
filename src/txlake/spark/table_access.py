"""What every operation of the data plane works with: one table at one moment, and Spark.

Owns the pairing of a statement's expressions with Spark columns and with the predicates that
conflict checks and file skipping use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.commit.data_plane import Condition
from txlake.commit.identities import Identities, LocalIdentities
from txlake.conflict.footprint import Read
from txlake.datafiles.recomputed_statistics import footer_of
from txlake.datafiles.vectors import ExternalVectors, union_with_deleted
from txlake.datafiles.write_task import COPY
from txlake.errors import InvalidRequest
from txlake.log.predicates import (
    Opaque,
    Predicate,
    bind,
    columns_of,
    conjuncts,
    has_schema_spelling,
    is_deterministic,
    may_depend_on_zone,
    parse_or_opaque,
    parse_predicate,
    path_has_schema_spelling,
)
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.log.text_rules import DEFAULT_RULES, StoreAssignment, TextRules
from txlake.log.time_zones import TimeZone
from txlake.ports import Store, System
from txlake.protocol.actions import Action, Add
from txlake.protocol.reach import Reach, no_other_places
from txlake.protocol.types import DataType, Field, Primitive
from txlake.settings import Settings
from txlake.spark.manifest import Manifests
from txlake.spark.reading import FILE, ROW
from txlake.spark.scan import Scan, scan_frame
from txlake.spark.session_rules import STORE_ASSIGNMENT
from txlake.spark.session_zones import session_zone
from txlake.spark.types import can_up_cast, type_text
from txlake.spark.writing import ACTION, Target, Written, write_frame
from txlake.sql.statements import Expression, NativeColumn, condition_text

_TEXT_MAX = 10_000
_CALL = re.compile(r"([^\s(),'\"`]+)\(")
_OPERATORS = frozenset(
    {
        *("=", "==", "<=>", "<", "<=", ">", ">=", "!=", "<>"),
        *("+", "-", "*", "/", "%", "&", "|", "^", "||", "!", "~"),
        *("and", "in", "like", "not", "or", "rlike"),
    }
)


def plain_column(expression: Expression) -> Column:
    """The Spark column of an expression that names no other table."""
    if isinstance(expression, NativeColumn):
        assert isinstance(expression.column, Column)
        return expression.column
    return F.expr(expression.rewritten(lambda _: None))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAccess:
    """One table as a statement sees it, and the means to read and write its rows.

    Attributes:
        start: gives the Spark session; not called for work that needs no Spark.
        allowed: gives the folders, beside the table's own, in which its files may lie.
        column_of: the Spark column of an expression; tables named in it are replaced by views.
        name: what qualifies the table's columns when the statement gives no alias.
        identities: gives the values of identity columns.
        rules: how the statement's texts read.
    """

    start: Callable[[], SparkSession]
    manifests: Manifests
    system: System
    settings: Settings
    snapshot: Snapshot
    store: Store
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed: Callable[[], Iterable[str]] = no_other_places
    column_of: Callable[[Expression], Column] = plain_column
    name: str | None = None
    identities: Identities = field(default_factory=LocalIdentities)
    rules: TextRules = DEFAULT_RULES

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when there is none."""
        return self.start()

    @property
    def reach(self) -> Reach:
        """Where the table's files may lie."""
        return Reach(self.store.url, self.allowed)

    def footer(self, add: Add) -> pq.FileMetaData:
        """The footer of a file of the table. Raises what `restating.footer_of` raises."""
        return footer_of(self.snapshot, add, self.store, self.reach, self.storage_options)

    @property
    def external_vectors(self) -> ExternalVectors:
        """How deletion vectors are read that lie outside of the table's folder."""
        return ExternalVectors.by_options(self.reach, self.storage_options)

    def scan(
        self,
        files: pa.Table,
        *,
        positions: bool = False,
        deleted: Mapping[int, BitMap64] | None = None,
        where: Predicate | None = None,
    ) -> DataFrame:
        """As `TableData.scan`; rows of which `where` isn't true may be left out."""
        return scan_frame(
            self.spark,
            self.manifests,
            Scan(
                snapshot=self.snapshot,
                store=self.store,
                reach=self.reach,
                files=self.in_zone(files),
                settings=self.settings,
                storage_options=self.storage_options,
                positions=positions,
                row_ids=positions and self.tracks_rows,
                deleted=deleted or {},
                where=where,
            ),
        )

    def with_deleted(
        self, files: Mapping[int, Add], deleted: Mapping[int, BitMap64]
    ) -> dict[int, BitMap64]:
        """For each file with new deletions, by its ordinal, all its deleted positions."""
        return union_with_deleted(self.store, files, deleted, self.external_vectors)

    def copied(self, files: pa.Table, deleted: Mapping[int, BitMap64]) -> Written:
        """Writes new files with the rows of these that are left; `deleted` as in `scan`."""
        positions = self.tracks_rows or self.reports_origins
        rows = self.scan(files, positions=positions, deleted=deleted)
        if not self.reports_origins:
            rows = rows.drop(FILE, ROW)
        return write_frame(rows.withColumn(ACTION, F.lit(COPY).cast("int")), self.target())

    def scan_with_metadata(self, files: pa.Table) -> DataFrame:
        scan = Scan(
            snapshot=self.snapshot,
            store=self.store,
            reach=self.reach,
            files=self.in_zone(files),
            settings=self.settings,
            storage_options=self.storage_options,
            row_ids=self.tracks_rows,
            file_metadata=True,
        )
        return scan_frame(self.spark, self.manifests, scan)

    @property
    def tracks_rows(self) -> bool:
        """Whether moved rows must keep their ids."""
        properties = self.snapshot.properties
        return properties.row_tracking and properties.materialized_row_id_column is not None

    @property
    def reports_origins(self) -> bool:
        """Whether it has to be known which rows new rows were made of: for the change data feed."""
        return self.snapshot.properties.change_data_feed

    @property
    def uses_vectors(self) -> bool:
        """Whether deleted rows are marked in deletion vectors, not rewritten."""
        return (
            self.snapshot.properties.enable_deletion_vectors
            and "deletionVectors" in self.snapshot.features
        )

    def target(self, *, data_change: bool = True) -> Target:
        """Where new rows go."""
        return Target(
            snapshot=self.snapshot,
            store=self.store,
            system=self.system,
            storage_options=self.storage_options,
            data_change=data_change,
            reports_origins=self.reports_origins and data_change,
        )

    def after(self, actions: tuple[Action, ...]) -> Self:
        """The same work on the table as these actions leave it."""
        return replace(self, snapshot=self.snapshot.apply(actions))

    def qualified(self, frame: DataFrame, alias: str | None) -> DataFrame:
        name = alias or self.name
        return frame if name is None else frame.alias(name)

    def predicate(self, expression: Expression | None, alias: str | None) -> Predicate | None:
        if expression is None:
            return None
        if isinstance(expression, NativeColumn) or expression.references:
            return Opaque(condition_text(expression))
        aliases = tuple(name for name in (alias, self.name) if name is not None)
        try:
            text = expression.rewritten(lambda _: None)  # `db.t.id` is `t.id` there
            predicate = parse_or_opaque(text, aliases=aliases, rules=self.rules)
            if not has_schema_spelling(predicate, self.snapshot.schema, self.rules):
                return Opaque(text)
            return self.bound(predicate)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.snapshot.table}: {error}") from error

    def on_parts(self, text: str, aliases: Sequence[str] = ()) -> tuple[Predicate, ...]:
        """The parts of a MERGE's ON condition that must all hold; not bound."""
        if self.rules.case_sensitive:  # here names of both sides are found in any letter case
            return (Opaque(text),)
        return conjuncts(parse_or_opaque(text, aliases=aliases, rules=self.rules))

    def require_spelled(self, path: tuple[str, ...]) -> None:
        """Checks that the session finds a column that a statement names.

        Raises InvalidRequest for one in another letter case, where that tells columns apart.
        """
        if self.rules.case_sensitive and not path_has_schema_spelling(path, self.snapshot.schema):
            raise unknown_column(".".join(path), self.snapshot)

    def require_assignable(self, source: DataType, item: Field) -> None:
        """Checks that the session's policy of store assignment lets values into a column.

        What ANSI, Spark's default, lets in is checked with each value. Raises InvalidRequest.
        """
        policy = self.rules.assignment
        if policy is StoreAssignment.ANSI or can_up_cast(source, item.type):
            return
        reason = (
            "takes no conversion that may lose something"
            if policy is StoreAssignment.STRICT
            else "isn't obeyed where a conversion may lose something: it stores another value or "
            "NULL without a word"
        )
        raise InvalidRequest(
            f"{self.snapshot.table}: column {item.name!r} is {type_text(item.type)}, the value is "
            f"{type_text(source)}: {STORE_ASSIGNMENT}={policy} {reason}; cast the value, or set "
            "the policy to ANSI"
        )

    def check_stored(self) -> None:
        """Checks that the table's own expressions mean in this session what they mean in others.

        Raises InvalidRequest as `TextRules.check_stored`.
        """
        table = self.snapshot.table
        for name, text in self.snapshot.properties.constraints.items():
            self.rules.check_stored(text, f"{table}: constraint {name}")
        for item in self.snapshot.schema:
            for key in ("delta.generationExpression", "CURRENT_DEFAULT", "delta.invariants"):
                stored = item.metadata.get(key)
                if isinstance(stored, str):
                    self.rules.check_stored(stored, f"{table}: column {item.name}")

    def bound(self, predicate: Predicate) -> Predicate:
        """The predicate over the table's columns. Raises InvalidRequest for an unknown one."""
        return bind(predicate, self.snapshot.schema, time_zone=lambda: self.time_zone)

    @property
    def time_zone(self) -> TimeZone:
        return session_zone(self.spark)

    def in_zone(self, files: pa.Table) -> pa.Table:
        """The files, also of other versions, with partition values as the session reads them."""
        return self.snapshot.files_in_zone(files, lambda: self.time_zone)

    def read(self, expression: Expression | None, alias: str | None) -> Read:
        predicate = self.predicate(expression, alias)
        if expression is None or predicate is None:
            return Read(deletes_all=True)
        condition = self.row_condition(predicate, expression, alias)
        return Read(
            predicate=predicate,
            text=condition_text(expression),
            deletes_all=condition is not None,
            condition=condition,
        )

    def row_condition(
        self, predicate: Predicate, expression: Expression, alias: str | None
    ) -> Condition | None:
        is_of_the_row = self.by_row(predicate) or _is_of_the_row(expression)
        if not is_of_the_row:
            return None
        zone = self.time_zone.name if may_depend_on_zone(predicate) else None
        return Condition(expression, alias, zone)

    def by_row(self, predicate: Predicate) -> bool:
        fields = (self.snapshot.schema.find(column[0]) for column in columns_of(predicate))
        return is_deterministic(predicate) and all(
            item is not None and isinstance(item.type, Primitive) for item in fields
        )


def _is_of_the_row(expression: Expression) -> bool:
    """Whether a condition given as a Column is certainly a function of the row alone.

    Spark Connect doesn't show what a Column is made of.
    """
    column = getattr(getattr(expression, "column", None), "_jc", None)
    return column is not None and calls_are_of_the_row(column.node().sql())


def calls_are_of_the_row(text: str) -> bool:
    """Whether the calls in Spark's text of a Column, `=(upper(s), 'A')`, are of the row alone.

    For that question one call stands for another whose answer depends on its arguments alone too,
    so operators are written as a call that SQL has.
    """
    if len(text) > _TEXT_MAX:
        return False
    try:
        return is_deterministic(parse_predicate(_CALL.sub(_sql_call, text)))
    except InvalidRequest:
        return False


def _sql_call(call: re.Match[str]) -> str:
    name = call[1]
    if name.lower() in _OPERATORS:
        return "coalesce("
    return call[0] if name.isidentifier() else "rand("  # a function of nobody knows what
