"""One table on the driver: its state, its files, and how conditions on its rows are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from txlake.commit.identities import Identities, LocalIdentities
from txlake.commit.parallel import parallel_map
from txlake.datafiles.files import store_and_name
from txlake.datafiles.recomputed_statistics import footer_of
from txlake.datafiles.vectors import ExternalVectors, load_vector
from txlake.errors import InvalidRequest
from txlake.local.choice import Declined
from txlake.local.remote_files import RemoteFile, StatementReads
from txlake.local.types import can_up_cast, type_text
from txlake.local.writing import WriteTarget
from txlake.log.predicates import (
    Opaque,
    Predicate,
    bind,
    conjuncts,
    has_schema_spelling,
    parse_or_opaque,
    path_has_schema_spelling,
)
from txlake.log.snapshot import Snapshot, unknown_column
from txlake.log.text_rules import DEFAULT_RULES, STORE_ASSIGNMENT, StoreAssignment, TextRules
from txlake.log.time_zones import TimeZone
from txlake.ports import Store, System
from txlake.protocol.actions import Action, Add
from txlake.protocol.paths import decode_path, is_absolute
from txlake.protocol.reach import Reach, no_other_places
from txlake.protocol.types import DataType, Field
from txlake.settings import Settings
from txlake.sql.statements import Expression, NativeColumn, condition_text

_LOCAL = "file://"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTable(ABC):
    """One table as a statement sees it, as far as the driver needs no Spark for it.

    Attributes:
        allowed: returns the folders, beside the table's own, in which its files may lie.
        name: what qualifies the table's columns when the statement gives no alias.
        identities: gives the values of identity columns.
        rules: how the statement's texts read.
        reads: what the statement has read of the table's files.
    """

    system: System
    settings: Settings
    snapshot: Snapshot
    store: Store
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed: Callable[[], Iterable[str]] = no_other_places
    name: str | None = None
    identities: Identities = field(default_factory=LocalIdentities)
    rules: TextRules = DEFAULT_RULES
    reads: StatementReads = field(default_factory=StatementReads, repr=False, compare=False)

    @property
    @abstractmethod
    def time_zone(self) -> TimeZone:
        """The time zone of timestamps that name none."""

    @property
    def reach(self) -> Reach:
        """Where the table's files may lie."""
        return Reach(self.store.url, self.allowed)

    def footer(self, add: Add) -> pq.FileMetaData:
        """Return the footer of a file of the table, read from its store.

        Raises as `footer_of` and `Reach.url`.
        """
        store, path = self._place_of(add)
        return footer_of(self.snapshot, add, partial(store.get_range, path))

    @property
    def is_remote(self) -> bool:
        """Whether the table isn't on this machine; some of its files may be."""
        return not self.store.url.startswith(_LOCAL)

    def remote_file(self, add: Add) -> RemoteFile | None:
        """Return a data file that isn't on this machine, with what the statement has fetched of it;
        None for one on this machine.

        Raises as `Reach.url`, and Declined for a file in a store that only Spark may know.
        """
        if self.reach.url(add.path).startswith(_LOCAL):
            return None
        try:
            store, path = self._place_of(add)
        except InvalidRequest as error:
            raise Declined(str(error)) from error
        return self.reads.file(store, path, add.size)

    def _place_of(self, add: Add) -> tuple[Store, str]:
        """Return the store that has a data file, and the file's path in it.

        Raises as `Reach.url`, and InvalidRequest for a store that txlake doesn't know.
        """
        if is_absolute(add.path):
            return store_and_name(self.reach.url(add.path), self.storage_options)
        return self.store, decode_path(add.path)

    @property
    def external_vectors(self) -> ExternalVectors:
        """How deletion vectors are read that lie outside of the table's folder."""
        return ExternalVectors.by_options(self.reach, self.storage_options)

    def deleted(self, add: Add) -> BitMap64:
        """Return the positions of a file's deleted rows, read once for the statement. Raises as
        `load_vector`.
        """
        vector = add.deletion_vector
        if vector is None:
            return BitMap64()
        load = partial(load_vector, self.store, vector, self.external_vectors)
        return self.reads.vector(vector.unique_id, load)

    def with_deleted(
        self, files: Mapping[int, Add], deleted: Mapping[int, BitMap64]
    ) -> dict[int, BitMap64]:
        """Return all deleted positions of each file with new deletions, by the file's ordinal.

        They are the new ones together with the ones in the file's deletion vector. Raises as
        `load_vector`.
        """
        old = parallel_map(
            lambda ordinal: self.deleted(files[ordinal]), list(deleted), store=lambda _: self.store
        )
        return {
            ordinal: bitmap | before
            for (ordinal, bitmap), before in zip(deleted.items(), old, strict=True)
        }

    @property
    def target_file_bytes(self) -> int:
        """The size up to which small files are packed: the table's property, else the setting."""
        return self.snapshot.properties.target_file_size or self.settings.target_file_bytes

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
        """Whether deleted rows are marked in deletion vectors, so that the file isn't rewritten."""
        return (
            self.snapshot.properties.enable_deletion_vectors
            and "deletionVectors" in self.snapshot.features
        )

    def target(self, *, data_change: bool = True) -> WriteTarget:
        """Return the table as the target of a write; without `data_change` its files are marked as
        only rearranging rows.
        """
        return WriteTarget(
            snapshot=self.snapshot,
            store=self.store,
            system=self.system,
            storage_options=self.storage_options,
            data_change=data_change,
            reports_origins=self.reports_origins and data_change,
        )

    def after(self, actions: tuple[Action, ...]) -> Self:
        """Return the table as it is after these actions."""
        return replace(self, snapshot=self.snapshot.apply(actions))

    def predicate(self, expression: Expression | None, alias: str | None) -> Predicate | None:
        """Return a condition bound to the table's columns; None without an expression.

        What the driver doesn't understand becomes Opaque, up to the whole condition: a column
        object of Spark, references to other tables, a name in another letter case where that
        counts. `alias` and the table's name may qualify columns. Raises InvalidRequest for an
        unknown column.
        """
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
        """Return the unbound parts of a MERGE's ON condition, which must all hold.

        One opaque part if the session tells columns apart by letter case. `aliases` are taken off
        column names.
        """
        if self.rules.case_sensitive:  # here names of both sides are found in any letter case
            return (Opaque(text),)
        return conjuncts(parse_or_opaque(text, aliases=aliases, rules=self.rules))

    def require_spelled(self, path: tuple[str, ...]) -> None:
        """Raise InvalidRequest if the session is case-sensitive and the path isn't spelled as in
        the table.
        """
        if self.rules.case_sensitive and not path_has_schema_spelling(path, self.snapshot.schema):
            raise unknown_column(".".join(path), self.snapshot)

    def require_assignable(self, source: DataType, item: Field) -> None:
        """Raise InvalidRequest if the session's store assignment policy, STRICT or LEGACY, doesn't
        let values of a type into a column.

        Types that Spark up-casts are always let in. ANSI, Spark's default, lets all in here: each
        value is checked later.
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
        """Raise InvalidRequest, naming the setting, if a setting of this session changes what the
        table's constraints, generated columns, defaults or invariants mean.
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
        """Return the predicate bound to the columns. Raises InvalidRequest for an unknown one.

        Literals become the columns' types; times without a zone are read in the session's.
        """
        return bind(predicate, self.snapshot.schema, time_zone=lambda: self.time_zone)

    def in_zone(self, files: pa.Table) -> pa.Table:
        """Return files, also of other versions, with timestamps of partitions read in the session's
        zone.
        """
        return self.snapshot.files_in_zone(files, lambda: self.time_zone)
