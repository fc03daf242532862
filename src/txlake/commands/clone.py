"""CLONE as a change: a table with the definition and files of another table.

A shallow clone refers to the source's files by URL, a deep clone copies them. Row ids start anew.
Source: PROTOCOL.md, "Add File and Remove File", "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from txlake.commit.change import Change
from txlake.commit.membership import DOMAIN
from txlake.ddl.create import existing_table, should_create
from txlake.ddl.environment import EVERY_ROW, Environment
from txlake.ddl.table_metadata import INTERNAL_PROPERTIES, new_table_actions
from txlake.errors import InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, Add, DeletionVector, FileKey
from txlake.protocol.branching import CLOSED
from txlake.protocol.branching import DOMAIN as BRANCHES
from txlake.protocol.branching import FEATURE as BRANCHING
from txlake.protocol.clustering import clustered_by
from txlake.protocol.column_mapping import MAX_ID_PROPERTY, MODE_PROPERTY
from txlake.protocol.deletion_vectors import relative_file_name, relative_vector
from txlake.protocol.features import CATALOG_FEATURE, MULTI_TABLE, READABLE, WRITABLE
from txlake.protocol.identity import marks_of, with_marks
from txlake.protocol.paths import decode_path, encode_path, is_absolute
from txlake.protocol.properties import canonical_key
from txlake.protocol.reach import ANYWHERE, Reach
from txlake.protocol.schema_rules import column_text
from txlake.sql.statements import Clone

# These bind a table to its own log, branches or catalog.
_NOT_CLONED = (
    CATALOG_FEATURE,
    "catalogManaged",
    "catalogOwned",
    "catalogOwned-preview",
    "checkpointProtection",
    *MULTI_TABLE,
    BRANCHING,
    CLOSED,
)


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file to copy: from a percent-encoded URL to a decoded path below the new table."""

    source: str
    target: str


@dataclass(slots=True)
class _ClonedFiles:
    """The files of a clone, and for a deep clone the copies that make them."""

    adds: list[Add]
    copies: list[FileCopy]


def clone(
    statement: Clone,
    source: Snapshot,
    existing: Snapshot | None,
    environment: Environment,
    *,
    origin: Reach,
    target_url: str,
    share: Callable[[Collection[str]], None],
    copy: Callable[[Sequence[FileCopy]], None],
) -> Change | None:
    """Return the change that makes a table a clone of a snapshot.

    Args:
        statement: the CLONE.
        source: the snapshot to clone.
        existing: the table at the target; None or version -1 if there is none.
        environment: time and ids.
        origin: where the files of the source may lie.
        target_url: the URL of the clone.
        share: records the locations where a shallow clone has its files; called before this
            returns.
        copy: copies files, for a deep clone; called before this returns.

    Returns:
        The change; None when `if_not_exists` finds a table. `affected` has Delta's counts. A file
        that the replaced table has already stays.

    Raises:
        InvalidRequest: the statement's mode doesn't allow that the table exists, or doesn't; an
            invalid property; a table cloned onto itself; a shallow clone that couldn't be read,
            because its files would lie where the clone's may not.
        CorruptTable: the source's log has a file path that leaves the table's folder.
        UnsupportedFeature: the table would need a feature that txlake doesn't write.
    """
    table = str(statement.table)
    existing = existing_table(existing)
    if not should_create(statement.mode, existing, table):
        return None
    if origin.root == target_url:
        raise InvalidRequest(f"{table}: a table can't be cloned onto itself; RESTORE goes back")
    actions = _definition(statement, source, existing, environment, table)
    if statement.shallow:
        cloned = _shared_files(source, origin)
        share({place for place in _locations(cloned.adds, origin) if place != ANYWHERE})
    else:
        cloned = _copied_files(source, origin, environment)
        copy(cloned.copies)
    current = {} if existing is None else {add.key: add for add in existing.files.adds()}
    unchanged = current.keys() & {add.key for add in cloned.adds}
    removed = [add for key, add in current.items() if key not in unchanged]
    added = [add for add in cloned.adds if add.key not in unchanged]
    copied = [] if statement.shallow else added
    counts = {
        "sourceTableSize": sum(add.size for add in cloned.adds),
        "sourceNumOfFiles": len(cloned.adds),
        "numRemovedFiles": len(removed),
        "numCopiedFiles": len(copied),
        "removedFilesSize": sum(add.size for add in removed),
        "copiedFilesSize": sum(add.size for add in copied),
    }
    removes = [add.tombstone(timestamp_ms=environment.now_ms) for add in removed]
    return Change(
        operation="CLONE",
        parameters={"source": source.table, "sourceVersion": source.version},
        actions=(*actions, *removes, *added),
        metrics=counts,
        reads=() if existing is None else (EVERY_ROW,),
        affected={_snake_case(name): value for name, value in counts.items()},
    )


def _snake_case(name: str) -> str:
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name)


def _definition(
    statement: Clone,
    source: Snapshot,
    existing: Snapshot | None,
    environment: Environment,
    table: str,
) -> tuple[Action, ...]:
    """Return the clone's protocol, metadata and domains.

    They are the source's with the statement's properties, without what binds the source to its log
    or catalog. Raises InvalidRequest for another column mapping mode than the source's, and as
    `new_table_actions`.
    """
    configuration = source.metadata.configuration
    mode = source.column_mapping_mode
    properties = {canonical_key(key): text for key, text in statement.properties}
    requested_mode = properties.get(MODE_PROPERTY, mode)
    if requested_mode.strip().lower() != mode:
        raise InvalidRequest(
            f"{table}: a clone has its source's column mapping mode, {mode!r}; "
            f"found {requested_mode!r}"
        )
    clustered = clustered_by(source.schema, source.domains, table=source.table)
    internal = set(INTERNAL_PROPERTIES) - {MAX_ID_PROPERTY}
    inherited = {key: value for key, value in configuration.items() if key not in internal}
    if MODE_PROPERTY in inherited:
        inherited[MODE_PROPERTY] = (
            mode  # without the feature in its protocol, the source's property is ignored
        )
    features = (source.features & (READABLE | WRITABLE)) - set(_NOT_CLONED)
    # What came with the catalog, or with branches, stays behind.
    if set(source.domains) == {DOMAIN} or (
        BRANCHING in source.features and set(source.domains) <= {BRANCHES}
    ):
        features -= {"domainMetadata"}
    before = {} if existing is None else marks_of(existing.schema, table)
    return new_table_actions(
        with_marks(source.schema, before, table),
        environment,
        table=table,
        existing=existing,
        partition_by=source.partition_columns,
        cluster_by=tuple(map(column_text, clustered)) if clustered else None,
        properties=statement.properties,
        description=None if existing is None else existing.metadata.description,
        inherited=inherited,
        features=sorted(features),
        defaults=False,
    )


def _cloned_add(add: Add, path: str, vector: DeletionVector | None) -> Add:
    """Return a file's add under another path and vector, without row ids."""
    return msgspec.structs.replace(
        add,
        path=path,
        deletion_vector=vector,
        data_change=True,
        base_row_id=None,
        default_row_commit_version=None,
    )


def _locations(adds: Iterable[Add], origin: Reach) -> Iterator[str]:
    """Yield the locations of the files and their deletion vectors' files."""
    for add in adds:
        yield origin.place_of(add.path)
        vector = add.deletion_vector
        if vector is not None and vector.storage_type != "i":
            yield origin.place_of(_vector_url(vector, origin))


def _shared_files(source: Snapshot, origin: Reach) -> _ClonedFiles:
    """Return a shallow clone's files, with absolute URLs."""
    adds = [
        _cloned_add(add, origin.url(add.path), _absolute_vector(add.deletion_vector, origin))
        for add in source.files.adds()
    ]
    return _ClonedFiles(adds, [])


def _absolute_vector(vector: DeletionVector | None, origin: Reach) -> DeletionVector | None:
    """Return a deletion vector with its file's URL; inline ones and None as they are."""
    if vector is None or vector.storage_type == "i":
        return vector
    return msgspec.structs.replace(
        vector, storage_type="p", path_or_inline_dv=_vector_url(vector, origin)
    )


def _vector_url(vector: DeletionVector, origin: Reach) -> str:
    path = origin.vector(vector)
    return path if is_absolute(path) else origin.url(encode_path(path))


def _copied_files(source: Snapshot, origin: Reach, environment: Environment) -> _ClonedFiles:
    """Return a deep clone's files, and the copies to make, vectors' files included.

    They have new names, so that no older file is overwritten.
    """
    adds: list[Add] = []
    copies: dict[FileKey, FileCopy] = {}
    vectors: dict[str, str] = {}
    for add in source.files.adds():
        path = decode_path(add.path)
        folder, name = posixpath.split(path)
        if is_absolute(add.path):
            folder = "/".join(_partition_folders(folder.split("/")))
        target = posixpath.join(folder, f"{environment.new_id()}-{name}")
        copies[add.key] = FileCopy(origin.url(add.path), target)
        vector = add.deletion_vector
        if vector is not None and vector.storage_type != "i":
            url = _vector_url(vector, origin)
            new_id = vectors.setdefault(url, environment.new_id())
            vector = relative_vector(
                new_id, "", vector.offset or 0, vector.size_in_bytes, vector.cardinality
            )
        adds.append(_cloned_add(add, encode_path(target), vector))
    files = [FileCopy(url, relative_file_name(new_id)) for url, new_id in vectors.items()]
    return _ClonedFiles(adds, [*copies.values(), *files])


def _partition_folders(parts: Iterable[str]) -> list[str]:
    return [part for part in parts if "=" in part]
