"""One table, and the named cases of two transactions on it: who may commit at which level.

A case's answer is the name of the rule that finds the conflict, for each level, or None.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from txlake.conflict.check import check_all
from txlake.conflict.concurrent_commit import ConcurrentCommit
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import Conflicted, NoConflict, Rebased
from txlake.conflict.footprint import Footprint, MarkUse, Read, ReadKind
from txlake.conflict.granularity import Granularity
from txlake.conflict.levels import Level, checked_at
from txlake.log.predicates import bind, parse_predicate
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Add, DeletionVector, DomainMetadata, Metadata, Protocol, Remove

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "p", "type": "string", "nullable": True, "metadata": {}},
    ],
}
FEATURES = (
    "appendOnly",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
    "v2Checkpoint",
)
READER_FEATURES = ("columnMapping", "deletionVectors", "v2Checkpoint")
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=READER_FEATURES,
    writer_features=FEATURES,
)
FEWER = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=READER_FEATURES,
    writer_features=tuple(name for name in FEATURES if name != "rowTracking"),
)
MORE = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=READER_FEATURES,
    writer_features=(*FEATURES, "checkConstraints"),
)


def metadata(schema: object = SCHEMA, **configuration: str) -> Metadata:
    """The table's metadata; `__` in a key stands for a dot."""
    return Metadata(
        id="t",
        schema_string=json.dumps(schema),
        partition_columns=("p",),
        configuration={key.replace("__", "."): value for key, value in configuration.items()},
    )


def vector(cardinality: int) -> DeletionVector:
    """A deletion vector of that many rows, in a file of its own."""
    return DeletionVector(
        storage_type="u",
        path_or_inline_dv=f"vector-{cardinality}",
        offset=1,
        size_in_bytes=36,
        cardinality=cardinality,
    )


def add(
    path: str,
    p: str | None = "1",
    ids: tuple[int, int] | None = None,
    *,
    dv: DeletionVector | None = None,
    data_change: bool = True,
) -> Add:
    """A file of partition `p` that holds ids of a range, or no statistics."""
    stats = None
    if ids is not None:
        stats = json.dumps(
            {
                "numRecords": 10,
                "minValues": {"id": ids[0]},
                "maxValues": {"id": ids[1]},
                "nullCount": {"id": 0},
            }
        )
    return Add(
        path=path,
        partition_values={"p": p},
        size=10,
        modification_time=1,
        data_change=data_change,
        stats=stats,
        deletion_vector=dv,
    )


def gone(file: Add, *, data_change: bool = True) -> Remove:
    """The file's remove."""
    return file.tombstone(timestamp_ms=1, data_change=data_change)


def restating(file: Add) -> Add:
    """The file with other statistics."""
    return replace(file, stats=json.dumps({"numRecords": 10}), data_change=False)


A = add("a", "1", (1, 10))
B = add("b", "2", (11, 20))
C = add("c", "1")
D = add("d", "2", (11, 20), dv=vector(2))
E = add("file:/t/e", "4", (50, 60))
TABLE = Snapshot.empty("t").apply(
    [PROTOCOL, metadata(), A, B, C, D, E], version=5, timestamp_ms=1_000
)


def read(
    text: str | None = None, kind: ReadKind = ReadKind.FOR_WRITE, *, files: bool = True
) -> Read:
    """A read by a condition; None reads the whole table."""
    predicate = None if text is None else bind(parse_predicate(text), TABLE.schema)
    return Read(predicate=predicate, text=text, kind=kind, files=files)


WHOLE = read()
NEW = add("new", "3", (100, 110))  # what most transactions add: matches no winner

Answer = str | None


@dataclass(frozen=True, kw_only=True)
class Case:
    """A transaction, the winners, and the rule that answers at each level."""

    name: str
    ours: Footprint
    winners: Sequence[ConcurrentCommit]
    serializable: Answer
    write_serializable: Answer
    snapshot: Answer
    base: Snapshot = field(default=TABLE)
    granularity: Granularity = Granularity.ROW

    def expected(self, level: Level) -> Answer:
        """The answer at a level."""
        return {
            Level.SERIALIZABLE: self.serializable,
            Level.WRITE_SERIALIZABLE: self.write_serializable,
            Level.SNAPSHOT: self.snapshot,
        }[level]

    def context(self, level: Level) -> CheckContext:
        """What the rules know."""
        return CheckContext(
            base=self.base,
            metadata=self.base.metadata,
            protocol=self.base.protocol,
            level=checked_at(
                level, changes_data=self.ours.changes_data, syncs_marks=self.ours.syncs_marks
            ),
            granularity=self.granularity,
        )

    def outcome(self, level: Level) -> NoConflict | Rebased | Conflicted:
        """What the check says."""
        return check_all(self.ours, self.winners, self.context(level))


def ours(**parts: object) -> Footprint:
    """A transaction on version 5 that adds a file, unless its parts say otherwise."""
    parts.setdefault("added", (NEW,))
    parts.setdefault("read_version", 5)
    return Footprint(**parts)  # type: ignore[arg-type]


def winner(version: int = 6, **parts: object) -> ConcurrentCommit:
    """A committed version."""
    parts.setdefault("operation", "WRITE")
    return ConcurrentCommit(version=version, **parts)  # type: ignore[arg-type]


def case(
    name: str,
    mine: Footprint,
    *theirs: ConcurrentCommit,
    all_levels: Answer = None,
    serializable: Answer = None,
    write_serializable: Answer = None,
    snapshot: Answer = None,
    **more: object,
) -> Case:
    """A case: an answer for all levels, or those of the stricter ones."""
    return Case(
        name=name,
        ours=mine,
        winners=theirs,
        serializable=all_levels or serializable,
        write_serializable=all_levels or write_serializable,
        snapshot=all_levels or snapshot,
        **more,  # type: ignore[arg-type]
    )


def domain(name: str) -> DomainMetadata:
    """A metadata domain that is set."""
    return DomainMetadata(domain=name, configuration="{}", removed=False)


UPDATE_A = {"added": (add("a2", "1", (1, 10)),), "removed": (gone(A),), "reads": (read("id = 5"),)}
EMPTY = Snapshot.empty("t")
CONSTRAINED = EMPTY.apply(
    [PROTOCOL, metadata(delta__constraints__c="id > 0"), A], version=5, timestamp_ms=1_000
)
IN_1 = add("w", "1", (1, 10))
IN_2 = add("w2", "2", (11, 20))
SETTINGS = metadata(user="x")
WITH_X = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"name": "x", "type": "long", "nullable": True, "metadata": {}}],
}


def of_identity(mark: int, **configuration: str) -> Metadata:
    """The metadata of a table whose id is an identity column."""
    about = {"start": 1, "step": 1, "allowExplicitInsert": False, "highWaterMark": mark}
    first, other = SCHEMA["fields"]
    named = {f"delta.identity.{key}": value for key, value in about.items()}
    fields = [{**first, "metadata": named}, other]
    return metadata({"type": "struct", "fields": fields}, **configuration)


IDENTITY = EMPTY.apply([PROTOCOL, of_identity(1), A], version=5, timestamp_ms=1_000)

CASES: tuple[Case, ...] = (
    # nothing to commit, nothing to fear
    case("a read-only transaction", ours(added=(), reads=(WHOLE,)), winner(metadata=SETTINGS)),
    case("a SELECT alone", ours(added=(), reads=(read(kind=ReadKind.PLAIN),)), winner(added=(A,))),
    # 1 protocol
    case(
        "two creators of a table",
        ours(read_version=-1, protocol=PROTOCOL, metadata=metadata()),
        winner(0, protocol=PROTOCOL, metadata=metadata()),
        all_levels="table_created_by_both",
        base=EMPTY,
    ),
    case(
        "a creator and a later commit of the table",
        ours(read_version=-1, protocol=PROTOCOL, metadata=metadata()),
        winner(7, added=(A,), is_blind_append=True),
        all_levels="table_created_by_both",
        base=EMPTY,
    ),
    case(
        "both upgrade the protocol",
        ours(added=(), protocol=MORE),
        winner(protocol=MORE),
        all_levels="protocol_changed_by_both",
    ),
    case("a winner adds a feature", ours(), winner(protocol=MORE)),
    case("a winner drops a feature", ours(), winner(protocol=FEWER), all_levels="features_dropped"),
    case(
        "a winner puts constraints into force that the metadata has",
        ours(),
        winner(protocol=MORE),
        all_levels="feature_came_into_force",
        base=CONSTRAINED,
    ),
    case(
        "a compaction while a winner puts constraints into force",
        ours(
            added=(add("ac", data_change=False),),
            removed=(gone(A, data_change=False),),
        ),
        winner(protocol=MORE),
        base=CONSTRAINED,
    ),
    case(
        "a feature dropped that a winner's row ids use",
        ours(added=(), protocol=FEWER),
        winner(added=(replace(NEW, base_row_id=1),)),
        all_levels="dropped_feature_used",
    ),
    case(
        "a feature dropped that no winner uses", ours(added=(), protocol=FEWER), winner(added=(B,))
    ),
    # 2 metadata and domains
    case(
        "both change the metadata",
        ours(added=(), metadata=SETTINGS),
        winner(metadata=SETTINGS),
        all_levels="metadata_changed",
    ),
    case(
        "a winner sets a property", ours(), winner(metadata=SETTINGS), all_levels="metadata_changed"
    ),
    case("a winner says the metadata again", ours(), winner(metadata=metadata())),
    case(
        "a winner turns deletion vectors on",
        ours(**UPDATE_A),
        winner(metadata=metadata(delta__enableDeletionVectors="true")),
    ),
    case(
        "a winner turns deletion vectors on and we change metadata",
        ours(metadata=SETTINGS),
        winner(metadata=metadata(delta__enableDeletionVectors="true")),
        all_levels="metadata_changed",
    ),
    case(
        "a winner turns deletion vectors on and we set a domain",
        ours(added=(), domains=(domain("mine"),)),
        winner(metadata=metadata(delta__enableDeletionVectors="true")),
    ),
    case(
        "both set properties, and we add rows",
        ours(metadata=SETTINGS),
        winner(metadata=metadata(other="x")),
        all_levels="metadata_changed",
    ),
    case(
        "both set properties",
        ours(added=(), metadata=SETTINGS),
        winner(metadata=metadata(other="x")),
    ),
    case(
        "both set properties, one of them twice",
        ours(added=(), metadata=SETTINGS),
        winner(metadata=metadata(other="x")),
        winner(7, metadata=metadata(other="x", user="y")),
        all_levels="metadata_changed",
    ),
    case(
        "both set properties, and a guard looked at the rows",
        ours(added=(), metadata=SETTINGS, reads=(read(kind=ReadKind.GUARD),)),
        winner(metadata=metadata(other="x")),
    ),
    case(
        "both set properties, and we read rows",
        ours(added=(), metadata=SETTINGS, reads=(WHOLE,)),
        winner(metadata=metadata(other="x")),
        all_levels="metadata_changed",
    ),
    case(
        "both set properties, and we read files",
        ours(added=(), metadata=SETTINGS, read_files=frozenset({"a"})),
        winner(metadata=metadata(other="x")),
        all_levels="metadata_changed",
    ),
    case(
        "both set properties, and we remove a file",
        ours(added=(), metadata=SETTINGS, removed=(gone(A),)),
        winner(metadata=metadata(other="x")),
        all_levels="metadata_changed",
    ),
    case(
        "both set properties, and we write change data",
        ours(added=(), metadata=SETTINGS, change_files=True),
        winner(metadata=metadata(other="x")),
        all_levels="metadata_changed",
    ),
    case(
        "a property beside the properties, of a feature that we drop with its property",
        ours(added=(), protocol=FEWER, metadata=SETTINGS),
        winner(metadata=metadata(delta__enableRowTracking="true")),
        all_levels="metadata_changed",
    ),
    case(
        "one property, and we drop a feature",
        ours(added=(), protocol=FEWER, metadata=SETTINGS),
        winner(metadata=metadata(user="y")),
        all_levels="metadata_changed",
    ),
    case(
        "a winner says the metadata again, and we change it and add rows",
        ours(metadata=SETTINGS),
        winner(metadata=metadata()),
    ),
    case(
        "a property beside the dropping of a feature",
        ours(added=(), protocol=FEWER, metadata=SETTINGS),
        winner(metadata=metadata(other="x")),
    ),
    case(
        "a winner adds a column and rows with it, and we a constraint",
        ours(added=(), metadata=metadata(delta__constraints__c="id > 0")),
        winner(metadata=metadata(WITH_X), added=(IN_1,)),
        all_levels="files_of_old_settings",
    ),
    case(
        "a winner adds a column and rows with it, and we a property",
        ours(added=(), metadata=SETTINGS),
        winner(metadata=metadata(WITH_X), added=(IN_1,)),
    ),
    case(
        "a winner adds a constraint and rows that keep to it, and we a property",
        ours(added=(), metadata=SETTINGS),
        winner(metadata=metadata(delta__constraints__c="id > 0"), added=(IN_1,)),
    ),
    case(
        "a winner moves an identity mark and we change metadata",
        ours(metadata=of_identity(1, owner="me")),
        winner(metadata=of_identity(7)),
        base=IDENTITY,
    ),
    case(
        "a winner moves an identity mark, and we drew values and change metadata",
        ours(metadata=of_identity(1, owner="me"), marks=MarkUse.MOVED),
        winner(metadata=of_identity(7)),
        base=IDENTITY,
        all_levels="metadata_changed",
    ),
    case(
        "a winner moves an identity mark that we move too",
        ours(metadata=of_identity(3), marks=MarkUse.MOVED),
        winner(metadata=of_identity(7)),
        base=IDENTITY,
        all_levels="metadata_changed",
    ),
    case(
        "both move an identity mark to the same value",
        ours(metadata=of_identity(7), marks=MarkUse.MOVED),
        winner(metadata=of_identity(7)),
        base=IDENTITY,
        all_levels="metadata_changed",
    ),
    case(
        "a winner sets a property, and we move an identity mark and add no file",
        ours(added=(), metadata=of_identity(7), marks=MarkUse.MOVED),
        winner(metadata=of_identity(1, owner="them")),
        base=IDENTITY,
        all_levels="metadata_changed",
    ),
    case(
        "a winner moves an identity mark that our metadata states",
        ours(added=(), metadata=of_identity(1, owner="me"), marks=MarkUse.STATED),
        winner(metadata=of_identity(7)),
        base=IDENTITY,
        all_levels="metadata_changed",
    ),
    case(
        "a winner sets a property, and our metadata states an identity mark",
        ours(added=(), metadata=of_identity(1, owner="me"), marks=MarkUse.STATED),
        winner(metadata=of_identity(1, colour="red")),
        base=IDENTITY,
    ),
    case(
        "a winner adds rows, and we move an identity mark and add none",
        ours(
            added=(),
            metadata=of_identity(7),
            marks=MarkUse.MOVED,
            syncs_marks=True,
            reads=(Read(files=False, is_assumed=True),),
        ),
        winner(added=(IN_1,)),
        base=IDENTITY,
        serializable="rows_added",
    ),
    case(
        "both write one domain",
        ours(domains=(domain("mine"),)),
        winner(domains=frozenset({"mine"})),
        all_levels="domain_changed",
    ),
    case(
        "a winner writes a domain that we read",
        ours(read_domains=frozenset({"mine"})),
        winner(domains=frozenset({"mine"})),
        all_levels="domain_changed",
    ),
    case(
        "two domains",
        ours(domains=(domain("mine"),)),
        winner(domains=frozenset({"theirs"})),
    ),
    # 3 application ids
    case(
        "a winner sets an id that we read",
        ours(read_app_ids=frozenset({"app"})),
        winner(app_ids=frozenset({"app"})),
        all_levels="app_id_advanced",
    ),
    case(
        "both set one id",
        ours(app_ids=frozenset({"app"})),
        winner(app_ids=frozenset({"app"})),
        all_levels="app_id_advanced",
    ),
    case("two ids", ours(app_ids=frozenset({"app"})), winner(app_ids=frozenset({"other"}))),
    # the coarsest granularity
    case(
        "granularity table: two changes of different partitions",
        ours(**UPDATE_A),
        winner(added=(IN_2,), removed=(gone(B),)),
        all_levels="table_changed_by_both",
        granularity=Granularity.TABLE,
    ),
    case(
        "granularity table: a change against an operation without a name",
        ours(**UPDATE_A),
        winner(added=(IN_2,), operation=None),
        all_levels="table_changed_by_both",
        granularity=Granularity.TABLE,
    ),
    *(
        case(
            f"granularity table: a change against a {operation} that read the table",
            ours(**UPDATE_A),
            winner(added=(IN_2,), operation=operation),
            all_levels="table_changed_by_both",
            granularity=Granularity.TABLE,
        )
        for operation in ("WRITE", "COPY INTO", "STREAMING UPDATE")
    ),
    case(
        "granularity table: a change against an append that read another table",
        ours(**UPDATE_A),
        winner(added=(IN_2,), is_blind_append=True, reads_elsewhere=frozenset({"other"})),
        granularity=Granularity.TABLE,
    ),
    case(
        "granularity table: an append that read the table against a change",
        ours(reads=(read("p = '2'"),)),
        winner(added=(IN_1,), removed=(gone(A),)),
        all_levels="table_changed_by_both",
        granularity=Granularity.TABLE,
    ),
    case(
        "granularity table: an append from another table against a change",
        ours(reads_elsewhere=frozenset({"other"})),
        winner(added=(IN_2,), removed=(gone(A),)),
        granularity=Granularity.TABLE,
    ),
    case(
        "granularity table: merges that only insert",
        ours(reads=(read("id = 100"),)),
        winner(added=(IN_2,), operation="MERGE"),
        all_levels="table_changed_by_both",
        granularity=Granularity.TABLE,
    ),
    case(
        "granularity table: an append against a change",
        ours(),
        winner(added=(IN_2,), removed=(gone(A),)),
        granularity=Granularity.TABLE,
    ),
    case(
        "granularity table: a change against an append",
        ours(added=(), removed=(gone(A),), reads=(read("id = 5"),)),
        winner(added=(IN_2,), is_blind_append=True, operation="LOAD"),
        granularity=Granularity.TABLE,
    ),
    # plain SELECTs
    case(
        "a SELECT would see more",
        ours(reads=(read("p = '1'", ReadKind.PLAIN),)),
        winner(added=(IN_1,), is_blind_append=True),
        serializable="select_not_true",
    ),
    case(
        "a SELECT would see less",
        ours(reads=(read("p = '1'", ReadKind.PLAIN),)),
        winner(removed=(gone(A),)),
        serializable="select_not_true",
    ),
    case(
        "a SELECT of another partition",
        ours(reads=(read("p = '1'", ReadKind.PLAIN),)),
        winner(added=(IN_2,), removed=(gone(B),)),
    ),
    case(
        "a SELECT comes before the reads of writes",
        ours(reads=(read("p = '1'"), read("p = '1'", ReadKind.PLAIN))),
        winner(added=(IN_1,)),
        serializable="select_not_true",
        write_serializable="rows_added",
    ),
    case(
        "a SELECT and a compaction",
        ours(reads=(read(kind=ReadKind.PLAIN),)),
        winner(added=(add("ac", data_change=False),), removed=(gone(A, data_change=False),)),
    ),
    # 4 rows added
    case("two appends", ours(), winner(added=(IN_1,), is_blind_append=True)),
    case("an append against an overwrite", ours(), winner(added=(IN_1,), removed=(gone(A),))),
    case(
        "an update against an append",
        ours(**UPDATE_A),
        winner(added=(IN_1,), is_blind_append=True),
        serializable="rows_added",
    ),
    case(
        "an update against an append of what another table had",
        ours(**UPDATE_A, writes_elsewhere=frozenset({"third"})),
        winner(added=(IN_1,), is_blind_append=True, reads_elsewhere=frozenset({"other"})),
        serializable="rows_added",
    ),
    case(
        "an update against an append of what another table had, which ours changes too",
        ours(**UPDATE_A, writes_elsewhere=frozenset({"other"})),
        winner(added=(IN_1,), is_blind_append=True, reads_elsewhere=frozenset({"other"})),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "an update against an append that read",
        ours(**UPDATE_A),
        winner(added=(IN_1,)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "an update against rows that statistics tell apart",
        ours(**UPDATE_A),
        winner(added=(add("w", "1", (11, 20)),)),
    ),
    case(
        "an update against rows that partition values tell apart",
        ours(**{**UPDATE_A, "reads": (read("p = '1'"),)}),
        winner(added=(add("w", "2"),)),
    ),
    case(
        "an update against a file without statistics",
        ours(**UPDATE_A),
        winner(added=(add("w", "2"),)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "a whole-table read against any row",
        ours(reads=(WHOLE,)),
        winner(added=(IN_2,)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "an append flagged blind while we change the schema too",
        ours(reads=(read("p = '1'"),), metadata=SETTINGS),
        winner(added=(IN_1,), is_blind_append=True),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "a dynamic partition overwrite against rows in the partition",
        ours(reads=(read("p = '1'", files=False),), removed=(gone(A),)),
        winner(added=(IN_1,)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "a file listed again adds no row",
        ours(reads=(WHOLE,)),
        winner(added=(A,)),
    ),
    case(
        "a file that a winner took away and another brought back",
        ours(reads=(read("p = '1'", files=False),)),
        winner(removed=(gone(A),)),
        winner(7, added=(A,)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "a file that gets a deletion vector adds no row",
        ours(reads=(read("p = '1'", files=False),)),
        winner(added=(add("a", "1", (1, 10), dv=vector(3)),), removed=(gone(A),)),
    ),
    case(
        "a vector taken back brings rows",
        ours(reads=(read("p = '2'"),)),
        winner(added=(add("d", "2", (11, 20)),), removed=(gone(D),)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "a vector replaced by a larger one may bring rows",
        ours(reads=(read("p = '2'", files=False),)),
        winner(added=(add("d", "2", (11, 20), dv=vector(5)),), removed=(gone(D),)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
    case(
        "a guard against an append",
        ours(added=(), metadata=SETTINGS, reads=(read(kind=ReadKind.GUARD),)),
        winner(added=(IN_1,), is_blind_append=True),
        all_levels="rows_added",
    ),
    case(
        "metadata alone against an append",
        ours(added=(), metadata=SETTINGS, reads=(WHOLE,)),
        winner(added=(IN_1,)),
    ),
    # 4 files of the settings before
    case(
        "a constraint against a blind append",
        ours(added=(), metadata=metadata(delta__constraints__c="id > 0")),
        winner(added=(IN_1,), is_blind_append=True),
        all_levels="files_of_old_settings",
    ),
    case(
        "a constraint against a delete",
        ours(added=(), metadata=metadata(delta__constraints__c="id > 0")),
        winner(added=(add("a", "1", (1, 10), dv=vector(3)),), removed=(gone(A),)),
    ),
    case(
        "a constraint against a compaction",
        ours(added=(), metadata=metadata(delta__constraints__c="id > 0")),
        winner(added=(add("ac", data_change=False),), removed=(gone(A, data_change=False),)),
    ),
    case(
        "a new partitioning against rows that may have come back",
        ours(added=(), metadata=replace(metadata(), partition_columns=())),
        winner(added=(add("d", "2", (11, 20), dv=vector(5)),), removed=(gone(D),)),
        all_levels="files_of_old_settings",
    ),
    # 5 rows deleted
    case(
        "an insert that read rows which are gone",
        ours(reads=(read("id = 5"),)),
        winner(removed=(gone(A),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
    ),
    case(
        "an insert that read other rows",
        ours(reads=(read("id = 5"),)),
        winner(removed=(gone(B),)),
    ),
    case(
        "a read of listed files",
        ours(read_files=frozenset({"b"})),
        winner(removed=(gone(B),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
    ),
    case(
        "a read of other listed files",
        ours(read_files=frozenset({"a"})),
        winner(removed=(gone(B),)),
    ),
    case(
        "rows that get deleted by a vector",
        ours(reads=(read("id = 5"),)),
        winner(added=(add("a", "1", (1, 10), dv=vector(3)),), removed=(gone(A),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
    ),
    case(
        "rows that came and went since are none of ours",
        ours(reads=(WHOLE,)),
        winner(added=(IN_1,), is_blind_append=True),
        winner(7, removed=(gone(IN_1),)),
        serializable="rows_added",
    ),
    case(
        "rows that a compaction moved are watched where they are",
        ours(reads=(read("id = 5"),)),
        winner(
            added=(add("ac", "1", (1, 10), data_change=False),),
            removed=(gone(A, data_change=False),),
        ),
        winner(7, removed=(gone(add("ac", "1", (1, 10))),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
    ),
    case(
        "other rows that a compaction moved",
        ours(reads=(read("id = 5"),)),
        winner(
            added=(add("bc", "2", (11, 20), data_change=False),),
            removed=(gone(B, data_change=False),),
        ),
        winner(7, removed=(gone(add("bc", "2", (11, 20))),)),
    ),
    case(
        "a predicate alone doesn't mind rows that go",
        ours(reads=(read("p = '1'", files=False),)),
        winner(removed=(gone(A),)),
    ),
    # 6 rows deleted by both
    case(
        "two deletes of one file",
        ours(added=(), removed=(gone(B),), reads=(read("p = '1'"),)),
        winner(removed=(gone(B),)),
        all_levels="rows_deleted_by_both",
    ),
    case(
        "two updates of one file",
        ours(**UPDATE_A),
        winner(removed=(gone(A),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
        snapshot="rows_deleted_by_both",
    ),
    case(
        "who takes all that it read, from a file of which the other took rows",
        ours(reads=(replaced(read("p = '1'"), deletes_all=True),), removed=(gone(A),)),
        winner(removed=(gone(A),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
        snapshot="rows_deleted_by_both",
        granularity=Granularity.FILE,
    ),
    case(
        "who takes rows and said nothing of reads, against the same file",
        ours(reads=(replaced(read(), is_assumed=True),), removed=(gone(A),)),
        winner(removed=(gone(A),)),
        all_levels="rows_deleted_by_both",
    ),
    case(
        "who takes rows and said nothing of reads, against another file",
        ours(reads=(replaced(read(), is_assumed=True),), removed=(gone(A),)),
        winner(removed=(gone(B),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
    ),
    case(
        "an update that takes all it read, files being the grain",
        ours(**{**UPDATE_A, "reads": (replaced(read("id = 5"), deletes_all=True),)}),
        winner(removed=(gone(A),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
        snapshot="rows_deleted_by_both",
    ),
    case(
        "two deletes of different files",
        ours(added=(), removed=(gone(B),), reads=(read("p = '2'"),)),
        winner(removed=(gone(A),)),
    ),
    case(
        "statistics of a file that a winner removed",
        ours(added=(A,), read_files=frozenset({"a"})),
        winner(removed=(gone(A),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
        snapshot="rows_deleted_by_both",
    ),
    case(
        "new statistics of a file that a winner removed give way",
        ours(added=(restating(A),), restated=frozenset({"a"})),
        winner(removed=(gone(A),)),
    ),
    case(
        "new statistics of a file that gets a deletion vector give way",
        ours(added=(restating(A), restating(B)), restated=frozenset({"a", "b"})),
        winner(added=(add("a", "1", (1, 10), dv=vector(3)),), removed=(gone(A),)),
    ),
    case(
        "new statistics of a file that a compaction rewrote give way",
        ours(added=(restating(A),), restated=frozenset({"a"})),
        winner(added=(add("ac", data_change=False),), removed=(gone(A, data_change=False),)),
    ),
    case(
        "a delete of a file that got new statistics",
        ours(added=(), removed=(gone(A),), reads=(read("p = '1'"),)),
        winner(added=(restating(A),)),
    ),
    case(
        "an update beside new statistics that give way",
        ours(
            **{**UPDATE_A, "added": (*UPDATE_A["added"], restating(B))}, restated=frozenset({"b"})
        ),
        winner(removed=(gone(A), gone(B))),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
        snapshot="rows_deleted_by_both",
    ),
    case(
        "one file in two spellings",
        ours(added=(), removed=(gone(E),), reads=(read("p = '1'"),)),
        winner(removed=(gone(add("file:///t/e", "4")),)),
        all_levels="rows_deleted_by_both",
    ),
    case(
        "a listed file in another spelling",
        ours(read_files=frozenset({"file:///t/e"})),
        winner(removed=(gone(E),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
    ),
    # 7 rewrites
    case(
        "an append against a compaction",
        ours(reads=(WHOLE,)),
        winner(
            added=(add("ac", data_change=False),),
            removed=(gone(A, data_change=False), gone(C, data_change=False)),
        ),
    ),
    case(
        "a delete of a file that was compacted",
        ours(added=(), removed=(gone(A),), reads=(read("p = '2'"),)),
        winner(added=(add("ac", data_change=False),), removed=(gone(A, data_change=False),)),
        all_levels="rows_deleted_by_both",
    ),
    case(
        "an update of a file that it read and that was compacted",
        ours(**UPDATE_A),
        winner(added=(add("ac", data_change=False),), removed=(gone(A, data_change=False),)),
        serializable="rows_deleted",
        write_serializable="rows_deleted",
        snapshot="rows_deleted_by_both",
    ),
    case(
        "a compaction against an append",
        ours(
            added=(add("ac", data_change=False),),
            removed=(gone(A, data_change=False),),
            reads=(WHOLE,),
        ),
        winner(added=(IN_1,)),
    ),
    case(
        "a compaction against a delete in its files",
        ours(
            added=(add("ac", data_change=False),),
            removed=(gone(A, data_change=False),),
            reads=(WHOLE,),
        ),
        winner(removed=(gone(A),)),
        all_levels="rows_deleted_by_both",
    ),
    # one path twice
    case(
        "both add one path",
        ours(),
        winner(added=(NEW,), is_blind_append=True),
        all_levels="file_added_by_both",
    ),
    # several winners
    case(
        "the second winner is the conflict",
        ours(**UPDATE_A),
        winner(added=(IN_2,)),
        winner(7, added=(IN_1,)),
        serializable="rows_added",
        write_serializable="rows_added",
    ),
)
