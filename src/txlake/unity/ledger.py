"""A Unity Catalog as the ledger of its tables: it ratifies one commit of one table at a time.

That of a lake, which `txlake serve` is, ratifies those of many.

Owns what is sent for a commit, a new table and a name, and how a lost answer is settled: by looking
whose commit is at the version. Source: Unity Catalog's Delta API, "Table Lifecycle"; PROTOCOL.md,
"Catalog-managed tables".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError
from txlake.ports import (
    DroppedTable,
    Head,
    Moved,
    NameChange,
    NewTable,
    PutOutcome,
    Ratification,
    Ratified,
    RenamedTable,
    Reserved,
    Store,
    System,
    TableCommit,
    Versions,
)
from txlake.protocol.actions import Action, CommitInfo, Metadata, Protocol, decode_actions
from txlake.protocol.file_names import commit_path
from txlake.protocol.types import parse_schema
from txlake.protocol.unity_columns import delta_columns
from txlake.storage import canonical_url
from txlake.transaction.publication import staged_path
from txlake.unity.answers import Credentials, Loaded, read
from txlake.unity.client import BUSY, Declined, Unanswered, UnityClient, delta_path

_log = logging.getLogger(__name__)
_LOOKS = 6
_LOOK_MS = 250.0
_ASSERT_UUID = "assert-table-uuid"
_GONE = 404
# Of a table's properties as the catalog shows them, those that no metadata holds.
_DERIVED = ("delta.feature.", "delta.minReaderVersion", "delta.minWriterVersion")
_DERIVED_TOO = frozenset(
    {"delta.lastUpdateVersion", "delta.lastCommitTimestamp", "delta.clusteringColumns"}
    | {"delta.rowTracking.rowIdHighWaterMark"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A table as the catalog told of it last. `is_new`: it has a place, and no name yet."""

    id: str
    schema: str
    name: str
    location: str
    is_new: bool = False

    @property
    def shown(self) -> str:
        """As messages name it."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """A commit that was staged, with what its file holds."""

    known: Known
    commit: TableCommit
    store: Store
    content: bytes
    actions: Sequence[Action]
    modified_ms: int

    def told(self) -> dict[str, object]:
        """As the Delta API wants to be told of it."""
        return {
            "version": self.commit.version,
            "timestamp": _time_of(self.actions),
            "file-name": self.commit.staged,
            "file-size": len(self.content),
            "file-modification-timestamp": self.modified_ms,
        }


@dataclass(slots=True)
class UnityLedger:
    """A `ports.Ledger`: it has no instants, and no turns. Threads may share it.

    Heads are asked for again by each attempt. What others read isn't known here, so that nothing
    which they may read is cleaned up.
    """

    client: UnityClient
    catalog: str
    system: System
    open_store: Callable[[str], Store] = field(init=False)
    _known: dict[str, Known] = field(default_factory=dict)

    def learn(self, table: Known) -> None:
        """From here on the table is known by its id."""
        self._known[table.id] = table

    def table_at(self, location: str) -> str | None:
        """The id of the table whose files are at a place, or around it."""
        for known in list(self._known.values()):
            place = canonical_url(known.location)
            if location == place or location.startswith(f"{place}/"):
                return known.id
        return None

    def credentials(self, table_id: str, operation: str) -> Credentials:
        """What the catalog lends for a table's files.

        Raises Declined, InvalidRequest, Unavailable.
        """
        known = self._known[table_id]
        if known.is_new:
            found = self.client.asked(delta_path("staging-tables", table_id, "credentials"))
        else:
            path = self.path(known.schema, known.name, "credentials")
            found = self.client.asked(path, {"operation": operation})
        return read(found, Credentials, known.shown)

    def path(self, schema: str, name: str | None = None, *rest: str) -> str:
        """The path of a table in the Delta API; without a name that of a schema's tables."""
        parts = ("catalogs", self.catalog, "schemas", schema, "tables")
        return delta_path(*parts, *(() if name is None else (name,)), *rest)

    def load(self, schema: str, name: str) -> Loaded | None:
        """What the catalog says of a table; None: there is none.

        Raises Unavailable, InvalidRequest.
        """
        try:
            found = self.client.asked(self.path(schema, name))
        except Declined as error:
            if error.status == _GONE:
                return None
            raise InvalidRequest(str(error)) from error
        return read(found, Loaded, f"{schema}.{name}")

    # The ledger

    def sequence(self) -> int:
        """There are no instants: always 0."""
        return 0

    def head(self, table_id: str) -> Head | None:
        """Where the table stands now; None: it has gone, or another table has its name."""
        known = self._known.get(table_id)
        found = None if known is None else self.load(known.schema, known.name)
        return None if found is None else head_of(found, table_id)

    def version_at(self, table_id: str, sequence: int) -> int | None:
        """The newest version."""
        head = self.head(table_id)
        return None if head is None else head.version

    def oldest_read(self, table_id: str) -> int | None:
        """The first one: anybody may be reading any."""
        return 0

    def ratify(self, request: Ratification) -> Ratified | Moved | Reserved:
        """Commits of one table, of several where the server is txlake's, or one name.

        Raises InvalidRequest for more than the server can do, and where it refuses; OutcomeUnknown;
        Unavailable.
        """
        if request.names:
            return self._rename(request)
        staged = [self._read(commit) for commit in request.commits]
        written = {one.known.id for one in staged}
        others = {key: at for key, at in request.unchanged.items() if key not in written}
        if len(staged) == 1 and not others:
            return self._commit(staged, {}, partial(self._ask_alone, staged[0]))
        return self._commit(staged, others, partial(self._ask_together, staged, others))

    def reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        """There are no turns."""
        return False

    def publishes(self, versions: Mapping[str, Versions]) -> None:
        """Tells the catalog up to where a table's log has its commits."""
        for table_id, range_ in versions.items():
            known = self._known[table_id]
            update = {
                "action": "set-latest-backfilled-version",
                "latest-published-version": range_.last,
            }
            try:
                self.client.told("POST", self.path(known.schema, known.name), _body(known, update))
            except (Declined, Unanswered) as error:
                # Who commits next tells it again.
                _log.info("%s: published, and the catalog wasn't told: %s", known.shown, error)

    def has_published(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        """As `publishes`, at once."""
        self.publishes({table: Versions(last, last) for table, last in versions.items()})

    # Commits

    def _read(self, commit: TableCommit) -> _Staged:
        known = self._known[commit.table_id]
        store = self.open_store(known.location)
        assert commit.staged is not None, "the commits of open tables are staged"
        path = staged_path(commit.staged)
        stored, content = store.head(path), store.get(path)
        now_ms = self.system.now_ms()
        return _Staged(
            known=known,
            commit=commit,
            store=store,
            content=content,
            actions=decode_actions(content, file=path),
            modified_ms=now_ms if stored is None else stored.modified_ms,
        )

    def _ask_alone(self, one: _Staged) -> None:
        known = one.known
        commit: dict[str, object] = {"action": "add-commit", "commit": one.told()}
        updates = [commit, *self._definition(one)]
        self.client.told("POST", self.path(known.schema, known.name), _body(known, *updates))

    def _ask_together(self, staged: Sequence[_Staged], others: Mapping[str, int]) -> None:
        """Asks txlake's server, which alone has transactions. Raises InvalidRequest elsewhere."""
        held = [self._known[table] for table in others]
        body = {
            "catalog": self.catalog,
            "tables": [{**_named(one.known), "commit": one.told()} for one in staged],
            "unchanged": [{**_named(one), "version": others[one.id]} for one in held],
        }
        if self.client.told_txlake("/transactions", body) is not None:
            return
        names = ", ".join(sorted(one.shown for one in (*(two.known for two in staged), *held)))
        raise InvalidRequest(
            f"this transaction would commit, or depends on, several tables of catalog "
            f"{self.catalog!r}: {names}. A Unity Catalog commits one table at a time; nothing was "
            "committed. Commit them one after the other, or keep them in a lake of txlake's own"
        )

    def _commit(
        self, staged: Sequence[_Staged], others: Mapping[str, int], ask: Callable[[], None]
    ) -> Ratified | Moved | Reserved:
        """Asks until it is known what became of it.

        Once a request was left without an answer, nothing that a later one is told means that it
        didn't happen: the staged files are kept until somebody's commits are at the versions.
        """
        said = ""
        for number in range(_LOOKS):
            if number:
                self.system.wait_ms(_LOOK_MS * 2**number)
            try:
                ask()
                return self._ratified()
            except Declined as error:
                if number == 0:
                    return self._declined(staged, others, error)
                said = str(error)
            except Unanswered as error:
                said = str(error)
            except TxlakeError as error:
                if number == 0:
                    raise  # it never got there
                said = str(error)
            answer = self._settled(staged, others)
            if answer is not None:
                return answer
        names = ", ".join(f"{one.known.shown} ({one.commit.staged})" for one in staged)
        raise OutcomeUnknown(
            f"whether the staged commits of {names} were ratified isn't known; look into the "
            f"tables' histories before you run it again: {said}"
        )

    def _declined(
        self, staged: Sequence[_Staged], others: Mapping[str, int], error: Declined
    ) -> Ratified | Moved | Reserved:
        """What a refusal of the only request means. Raises InvalidRequest."""
        if error.status == BUSY:
            return Reserved(transaction_id="")
        if error.kind == "CommitVersionConflictException":
            answer = self._settled(staged, others)
            if answer is not None:
                return answer
        names = ", ".join(one.known.shown for one in staged)
        if error.status == _GONE or error.kind == "UpdateRequirementConflictException":
            raise InvalidRequest(
                f"{names}: a table was dropped, or another one has its name now; nothing was "
                f"committed: {error}"
            ) from error
        raise InvalidRequest(f"{names}: nothing was committed: {error}") from error

    def _settled(
        self, staged: Sequence[_Staged], others: Mapping[str, int]
    ) -> Ratified | Moved | None:
        """Whose commits are at the versions; None: nobody's yet, or nobody tells."""
        first = staged[0]
        version = first.commit.version
        try:
            tables = (*(one.known.id for one in staged), *others)
            heads = {table: self.head(table) for table in tables}
            head = heads[first.known.id]
            if head is not None and head.version >= version:
                pending = {one.version: one.staged for one in head.pending}
                if version in pending:
                    is_own = pending[version] == first.commit.staged
                else:
                    is_own = first.store.get(commit_path(version)) == first.content
                if is_own:  # and those beside it, which are ratified with it
                    return self._ratified()
        except (TxlakeError, FileNotFoundError):
            return None
        now = {table: at.version for table, at in heads.items() if at is not None}
        expected = {one.known.id: one.commit.version - 1 for one in staged} | dict(others)
        return None if now == expected or len(now) < len(heads) else Moved(heads=now)

    def _definition(self, staged: _Staged) -> list[dict[str, object]]:
        """What the catalog is told of the table's definition, where the commit changes it."""
        known, actions = staged.known, staged.actions
        protocol = next((one for one in actions if isinstance(one, Protocol)), None)
        metadata = next((one for one in actions if isinstance(one, Metadata)), None)
        updates: list[dict[str, object]] = []
        if protocol is not None:
            updates.append({"action": "set-protocol", "protocol": protocol_told(protocol)})
        if metadata is None:
            return updates
        found = self.load(known.schema, known.name)
        before: Mapping[str, str] = {} if found is None else found.metadata.properties
        now = metadata.configuration
        changed = {key: text for key, text in now.items() if before.get(key) != text}
        gone = [key for key in before if key not in now and not _is_derived(key)]
        if changed:
            updates.append({"action": "set-properties", "updates": changed})
        if gone:
            updates.append({"action": "remove-properties", "removals": gone})
        updates.append(
            {
                "action": "set-columns",
                "columns": delta_columns(parse_schema(metadata.schema_string)),
            }
        )
        if metadata.description is not None:
            updates.append({"action": "set-table-comment", "comment": metadata.description})
        return updates

    def _ratified(self) -> Ratified:
        return Ratified(sequence=0, time_ms=self.system.now_ms())

    # Names

    def _rename(self, request: Ratification) -> Ratified | Moved:
        """Carries out a change of one name, with its table's first commit where it is new.

        What a new table was made of is looked at right before: nobody can have read that table
        yet, so that whoever changes the others meanwhile comes after it.
        """
        first, *more = request.names
        others = {one.table_id for one in request.commits} - {first.id}
        is_new = isinstance(first, NewTable)
        if more or others or (request.unchanged and not is_new):
            raise InvalidRequest(
                "a Unity Catalog changes one name at a time, and no other table with it; nothing "
                "was changed: end the transaction after each"
            )
        match first:
            case NewTable():
                heads = {table: self.head(table) for table in request.unchanged}
                now = {table: at.version for table, at in heads.items() if at is not None}
                if now != dict(request.unchanged):
                    return Moved(heads=now)
                self._create(first, request.commits)
            case DroppedTable() | RenamedTable() if not request.commits:
                self._changed(first)
            case _:
                raise InvalidRequest(
                    "a Unity Catalog can't do this to a name and commit to its table at once"
                )
        return self._ratified()

    def _create(self, change: NewTable, commits: Collection[TableCommit]) -> None:
        [commit] = commits
        store = self.open_store(change.location)
        assert commit.version == 0, "it is a new table"
        assert commit.staged is not None, "it is an open one"
        content = store.get(staged_path(commit.staged))
        outcome = store.put_if_absent(commit_path(0), content)
        if outcome is not PutOutcome.CREATED and store.get(commit_path(0)) != content:
            raise CorruptTable(
                f"{store.url}/{commit_path(0)} exists: another writer uses the place that the "
                "catalog gave out for this table"
            )
        actions = decode_actions(content, file=commit_path(0))
        metadata = next(one for one in actions if isinstance(one, Metadata))
        protocol = next(one for one in actions if isinstance(one, Protocol))
        body: dict[str, object] = {
            "name": change.name,
            "location": change.location,
            "table-type": "MANAGED",
            "columns": delta_columns(parse_schema(metadata.schema_string)),
            "partition-columns": list(metadata.partition_columns),
            "protocol": protocol_told(protocol),
            "properties": dict(metadata.configuration),
            "last-commit-timestamp-ms": _time_of(actions),
        }
        if metadata.description is not None:
            body["comment"] = metadata.description
        shown = f"{change.database}.{change.name}"
        try:
            self.client.told("POST", self.path(change.database), body)
        except Declined as error:
            raise InvalidRequest(f"{shown}: it wasn't created: {error}") from error
        except Unanswered as error:
            found = self.load(change.database, change.name)
            if found is None or found.metadata.table_uuid != change.id:
                raise OutcomeUnknown(
                    f"{shown}: whether it was created isn't known; look for it with SHOW TABLES, "
                    f"and create it again where it isn't there: {error}"
                ) from error
        self.learn(
            Known(id=change.id, schema=change.database, name=change.name, location=change.location)
        )

    def _changed(self, change: NameChange) -> None:
        assert isinstance(change, DroppedTable | RenamedTable)
        known = self._known[change.id]
        path = self.path(known.schema, known.name)
        try:
            if isinstance(change, DroppedTable):
                self.client.told("DELETE", path)
            elif change.database.lower() != known.schema.lower():
                raise InvalidRequest(
                    f"{known.shown}: a Unity Catalog renames a table within its schema"
                )
            else:
                self.client.told("POST", f"{path}/rename", {"new-name": change.name})
        except Declined as error:
            raise InvalidRequest(f"{known.shown}: nothing was changed: {error}") from error
        except Unanswered as error:
            raise OutcomeUnknown(
                f"{known.shown}: whether that was done isn't known; look with SHOW TABLES: {error}"
            ) from error


def head_of(loaded: Loaded, table_id: str) -> Head | None:
    """Where a table stands, as the catalog tells; None where it is another table.

    Raises InvalidRequest for a table whose commits the catalog doesn't make.
    """
    if loaded.metadata.table_uuid != table_id:
        return None
    version = loaded.latest_table_version
    if version is None:
        raise InvalidRequest(
            f"{loaded.metadata.location}: its commits aren't made by the catalog any more"
        )
    pending = [
        TableCommit(table_id=table_id, version=one.version, staged=one.file_name, is_shared=True)
        for one in loaded.commits or ()
    ]
    return Head(version=version, pending=tuple(sorted(pending, key=lambda one: one.version)))


def protocol_told(protocol: Protocol) -> dict[str, object]:
    """A protocol in the Delta API's form."""
    return {
        "min-reader-version": protocol.min_reader_version,
        "min-writer-version": protocol.min_writer_version,
        "reader-features": list(protocol.reader_features or ()),
        "writer-features": list(protocol.writer_features or ()),
    }


def _named(known: Known) -> dict[str, object]:
    return {"schema": known.schema, "table": known.name, "uuid": known.id}


def _is_derived(key: str) -> bool:
    return key.startswith(_DERIVED) or key in _DERIVED_TOO


def _body(known: Known, *updates: dict[str, Any]) -> dict[str, object]:
    return {
        "requirements": [{"type": _ASSERT_UUID, "uuid": known.id}],
        "updates": list(updates),
    }


def _time_of(actions: Collection[Action]) -> int:
    info = next((one for one in actions if isinstance(one, CommitInfo)), None)
    time = None if info is None else info.in_commit_timestamp_ms
    assert time is not None, "open tables have in-commit timestamps"
    return time
