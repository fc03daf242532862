"""A Unity Catalog as the ledger of its tables: it ratifies one commit of one table at a time.

The catalog of a lake, which `txlake serve` serves, ratifies commits of several tables at once.

Owns the requests for a commit, a new table and a name. A lost response is resolved by reading whose
commit is at the version. Source: Unity Catalog's Delta API, "Table Lifecycle"; PROTOCOL.md,
"Catalog-managed tables".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from txlake.catalog.unity.bodies import (
    KnownTable,
    commit_time_ms,
    creation_body,
    metadata_updates,
    protocol_update,
    table_reference,
    update_body,
)
from txlake.catalog.unity.client import BUSY, RequestRefused, ResponseLost, UnityClient, delta_path
from txlake.catalog.unity.responses import Credentials, LoadedTable, decode
from txlake.commit.publication import staged_path
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError
from txlake.ports import (
    DroppedTable,
    Head,
    HeadsMoved,
    NameChange,
    NewTable,
    PutOutcome,
    Ratification,
    Ratified,
    RenamedTable,
    Store,
    System,
    TableCommit,
    TurnTaken,
    VersionRange,
)
from txlake.protocol.actions import (
    Action,
    Metadata,
    Protocol,
    TransactionGroup,
    decode_actions,
)
from txlake.protocol.file_names import commit_path
from txlake.storage import canonical_url

_log = logging.getLogger(__name__)
_ATTEMPTS = 6
_RETRY_WAIT_MS = 250.0
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """A staged commit, with its file's content."""

    known: KnownTable
    commit: TableCommit
    store: Store
    content: bytes
    actions: Sequence[Action]
    modified_ms: int

    def to_json(self) -> dict[str, object]:
        """Return the commit in the Delta API's form."""
        return {
            "version": self.commit.version,
            "timestamp": commit_time_ms(self.actions),
            "file-name": self.commit.staged,
            "file-size": len(self.content),
            "file-modification-timestamp": self.modified_ms,
        }


@dataclass(slots=True)
class UnityLedger:
    """A `ports.Ledger` without instants and without turns. Thread-safe.

    Each attempt reads the heads again. The versions that other sessions read are unknown, so
    clean-up keeps every version.
    """

    client: UnityClient
    catalog: str
    system: System
    open_store: Callable[[str], Store] = field(init=False)
    _known: dict[str, KnownTable] = field(default_factory=dict)

    def remember(self, table: KnownTable) -> None:
        """Remember the table by its id."""
        self._known[table.id] = table

    def table_at(self, location: str) -> str | None:
        """Return the id of the remembered table whose folder is or contains the location; None if
        there is none.
        """
        for known in list(self._known.values()):
            place = canonical_url(known.location)
            if location == place or location.startswith(f"{place}/"):
                return known.id
        return None

    def credentials(self, table_id: str, operation: str) -> Credentials:
        """Return the credentials that the catalog vends for a remembered table's files.

        `operation`: READ or READ_WRITE. Raises RequestRefused, InvalidRequest, Unavailable.
        """
        known = self._known[table_id]
        if known.is_new:
            response = self.client.get(delta_path("staging-tables", table_id, "credentials"))
        else:
            path = self.path(known.schema, known.name, "credentials")
            response = self.client.get(path, {"operation": operation})
        return decode(response, Credentials, known.full_name)

    def path(self, schema: str, name: str | None = None, *rest: str) -> str:
        """Return the path of a table in the Delta API; without `name`, of the schema's tables."""
        parts = ("catalogs", self.catalog, "schemas", schema, "tables")
        return delta_path(*parts, *(() if name is None else (name,)), *rest)

    def load(self, schema: str, name: str) -> LoadedTable | None:
        """Return a table's state in the catalog; None if it doesn't exist.

        Raises Unavailable, InvalidRequest.
        """
        try:
            response = self.client.get(self.path(schema, name))
        except RequestRefused as error:
            if error.status == _NOT_FOUND:
                return None
            raise InvalidRequest(str(error)) from error
        return decode(response, LoadedTable, f"{schema}.{name}")

    # The ledger

    def sequence(self) -> int:
        """Return 0: there are no instants."""
        return 0

    def head(self, table_id: str) -> Head | None:
        """Return the table's head; None if it was dropped, or another table has its name.

        Raises InvalidRequest if the catalog doesn't manage its commits any more, Unavailable.
        """
        known = self._known.get(table_id)
        loaded = None if known is None else self.load(known.schema, known.name)
        return None if loaded is None else head_of(loaded, table_id)

    def known_head(self, table_id: str) -> Head | None:
        """Return the table's head, requested anew, as `head`."""
        return self.head(table_id)

    def version_at(self, table_id: str, sequence: int) -> int | None:
        """Return the newest version, as there are no instants; None and errors as `head`."""
        head = self.head(table_id)
        return None if head is None else head.version

    def oldest_read(self, table_id: str, *, by_branches: bool = True) -> int | None:
        """Return 0: readers are unknown, and may read any version."""
        return 0

    def ratify(self, request: Ratification) -> Ratified | HeadsMoved | TurnTaken:
        """Ratify commits of one table, of several if the server is txlake's, or one name change.

        Raises:
            InvalidRequest: the request is more than the server can do, or the server refuses it.
            OutcomeUnknown: the response was lost, and reading the heads didn't show the outcome.
            Unavailable: the server can't be reached.
        """
        if request.names:
            return self._ratify_name(request)
        staged = [self._load_staged(commit) for commit in request.commits]
        written = {commit.known.id for commit in staged}
        others = {table: at for table, at in request.unchanged.items() if table not in written}
        if len(staged) == 1 and not others:
            return self._commit(staged, {}, partial(self._send_single, staged[0]))
        return self._commit(
            staged, others, partial(self._send_transaction, request.transaction_id, staged, others)
        )

    def reserve(self, transaction_id: str, table_ids: Collection[str]) -> bool:
        """Return False: there are no turns."""
        return False

    def record_publication(self, versions: Mapping[str, VersionRange]) -> None:
        """Report to the catalog up to which version each table is published; log a report that is
        refused or whose response is lost. Raises InvalidRequest if access is denied, Unavailable.
        """
        for table_id, range_ in versions.items():
            known = self._known[table_id]
            update = {
                "action": "set-latest-backfilled-version",
                "latest-published-version": range_.last,
            }
            try:
                self.client.send(
                    "POST", self.path(known.schema, known.name), update_body(known, update)
                )
            except (RequestRefused, ResponseLost) as error:
                # The next commit reports it again.
                _log.info(
                    "%s: published, but the report to the catalog failed: %s",
                    known.full_name,
                    error,
                )

    def record_publication_soon(self, transaction_id: str, versions: Mapping[str, int]) -> None:
        """Report as `record_publication`, at once."""
        self.record_publication(
            {table: VersionRange(last, last) for table, last in versions.items()}
        )

    # Commits

    def _load_staged(self, commit: TableCommit) -> _Staged:
        """Read a staged commit's file. Raises FileNotFoundError if it is missing."""
        known = self._known[commit.table_id]
        store = self.open_store(known.location)
        assert commit.staged is not None, "commits of catalog-managed tables are staged"
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

    def _send_single(self, staged: _Staged) -> None:
        """Send the commit of one table, with its changes of the definition. Raises as
        `UnityClient.send`.
        """
        known = staged.known
        commit: dict[str, object] = {"action": "add-commit", "commit": staged.to_json()}
        updates = [commit, *self._definition_updates(staged)]
        self.client.send("POST", self.path(known.schema, known.name), update_body(known, *updates))

    def _send_transaction(
        self, transaction_id: str, staged: Sequence[_Staged], others: Mapping[str, int]
    ) -> None:
        """Send the commits to txlake's own API. Raises InvalidRequest on other servers, and as
        `UnityClient.send`.
        """
        unchanged = [self._known[table] for table in others]
        names_itself = any(isinstance(one, TransactionGroup) for one in staged[0].actions)
        body = {
            "catalog": self.catalog,
            "transaction-id": transaction_id if names_itself else None,
            "tables": [
                {**table_reference(commit.known), "commit": commit.to_json()} for commit in staged
            ],
            "unchanged": [
                {**table_reference(table), "version": others[table.id]} for table in unchanged
            ],
        }
        if self.client.post_to_txlake("/transactions", body) is not None:
            return
        names = ", ".join(
            sorted(table.full_name for table in (*(commit.known for commit in staged), *unchanged))
        )
        raise InvalidRequest(
            f"this transaction would commit, or depends on, several tables of catalog "
            f"{self.catalog!r}: {names}. A Unity Catalog commits one table at a time; nothing was "
            "committed. Commit them one after the other, or keep them in a lake of txlake's own"
        )

    def _commit(
        self, staged: Sequence[_Staged], others: Mapping[str, int], send: Callable[[], None]
    ) -> Ratified | HeadsMoved | TurnTaken:
        """Send the request until its outcome is known, and return the outcome.

        Once a response was lost, a later refusal doesn't prove that the commit failed: the staged
        files are kept until some commit is at the versions.

        Raises InvalidRequest if the first attempt is refused, Unavailable if the server can't be
        reached then, OutcomeUnknown after the last attempt.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.system.wait_ms(_RETRY_WAIT_MS * 2**attempt)
            try:
                send()
                return self._ratified()
            except RequestRefused as error:
                if attempt == 0:
                    return self._refused_outcome(staged, others, error)
                reason = str(error)
            except ResponseLost as error:
                reason = str(error)
            except TxlakeError as error:
                if attempt == 0:
                    raise  # the request wasn't sent
                reason = str(error)
            outcome = self._find_outcome(staged, others)
            if outcome is not None:
                return outcome
        names = ", ".join(f"{item.known.full_name} ({item.commit.staged})" for item in staged)
        raise OutcomeUnknown(
            f"whether the staged commits of {names} were ratified isn't known; look into the "
            f"tables' histories before you run it again: {reason}"
        )

    def _refused_outcome(
        self, staged: Sequence[_Staged], others: Mapping[str, int], error: RequestRefused
    ) -> Ratified | HeadsMoved | TurnTaken:
        """Return TurnTaken if the server is busy, the outcome if heads moved; else raise
        InvalidRequest.
        """
        if error.status == BUSY:
            return TurnTaken(transaction_id="")
        if error.kind == "CommitVersionConflictException":
            outcome = self._find_outcome(staged, others)
            if outcome is not None:
                return outcome
        names = ", ".join(commit.known.full_name for commit in staged)
        if error.status == _NOT_FOUND or error.kind == "UpdateRequirementConflictException":
            raise InvalidRequest(
                f"{names}: a table was dropped, or another one has its name now; nothing was "
                f"committed: {error}"
            ) from error
        raise InvalidRequest(f"{names}: nothing was committed: {error}") from error

    def _find_outcome(
        self, staged: Sequence[_Staged], others: Mapping[str, int]
    ) -> Ratified | HeadsMoved | None:
        """Return `Ratified` if the staged commits are at their versions, `HeadsMoved` if others
        are; None if that is unknown, or there are no commits at the versions yet.
        """
        first = staged[0]
        version = first.commit.version
        try:
            tables = (*(commit.known.id for commit in staged), *others)
            heads = {table: self.head(table) for table in tables}
            head = heads[first.known.id]
            if head is not None and head.version >= version:
                pending = {commit.version: commit.staged for commit in head.pending}
                if version in pending:
                    is_own = pending[version] == first.commit.staged
                else:
                    is_own = first.store.get(commit_path(version)) == first.content
                if is_own:  # so are the other tables' commits, ratified together
                    return self._ratified()
        except (TxlakeError, FileNotFoundError):
            return None
        current = {table: at.version for table, at in heads.items() if at is not None}
        expected = {item.known.id: item.commit.version - 1 for item in staged} | dict(others)
        if current == expected or len(current) < len(heads):
            return None
        return HeadsMoved(heads=current)

    def _definition_updates(self, staged: _Staged) -> list[dict[str, object]]:
        """Return the updates for the parts of the definition that the commit changes."""
        known, updates = staged.known, []
        protocol = next((action for action in staged.actions if isinstance(action, Protocol)), None)
        metadata = next((action for action in staged.actions if isinstance(action, Metadata)), None)
        if protocol is not None:
            updates.append(protocol_update(protocol))
        if metadata is not None:
            loaded = self.load(known.schema, known.name)
            before = {} if loaded is None else loaded.metadata.properties
            updates.extend(metadata_updates(metadata, before))
        return updates

    def _ratified(self) -> Ratified:
        return Ratified(sequence=0, time_ms=self.system.now_ms())

    # Names

    def _ratify_name(self, request: Ratification) -> Ratified | HeadsMoved:
        """Ratify a change of one name; for a new table, with the table's first commit.

        The heads of a new table's sources are checked just before. No transaction can have read the
        new table then, so a later change of a source is ordered after its creation.

        Raises InvalidRequest for more than one change, and for a commit with it that isn't a new
        table's first; and as `_create_table` and `_send_name_change`.
        """
        first, *more = request.names
        others = {commit.table_id for commit in request.commits} - {first.id}
        is_new = isinstance(first, NewTable)
        if more or others or (request.unchanged and not is_new):
            raise InvalidRequest(
                "a Unity Catalog changes one name at a time, and no other table with it; nothing "
                "was changed: end the transaction after each"
            )
        match first:
            case NewTable():
                heads = {table: self.head(table) for table in request.unchanged}
                current = {table: at.version for table, at in heads.items() if at is not None}
                if current != dict(request.unchanged):
                    return HeadsMoved(heads=current)
                self._create_table(first, request.commits)
            case DroppedTable() | RenamedTable() if not request.commits:
                self._send_name_change(first)
            case _:
                raise InvalidRequest(
                    "a Unity Catalog can't do this to a name and commit to its table at once"
                )
        return self._ratified()

    def _create_table(self, change: NewTable, commits: Collection[TableCommit]) -> None:
        """Publish a new table's first commit and create the table in the catalog.

        Raises CorruptTable if another commit is at its place, InvalidRequest if the catalog refuses
        it, OutcomeUnknown if the response is lost and the table isn't there.
        """
        [commit] = commits
        store = self.open_store(change.location)
        assert commit.version == 0, "a new table's first commit is version 0"
        assert commit.staged is not None, "commits of catalog-managed tables are staged"
        content = store.get(staged_path(commit.staged))
        outcome = store.put_if_absent(commit_path(0), content)
        if outcome is not PutOutcome.CREATED and store.get(commit_path(0)) != content:
            raise CorruptTable(
                f"{store.url}/{commit_path(0)} exists: another writer uses the place that the "
                "catalog gave out for this table"
            )
        actions = decode_actions(content, file=commit_path(0))
        body = creation_body(change.name, change.location, actions)
        full_name = f"{change.database}.{change.name}"
        try:
            self.client.send("POST", self.path(change.database), body)
        except RequestRefused as error:
            raise InvalidRequest(f"{full_name}: it wasn't created: {error}") from error
        except ResponseLost as error:
            loaded = self.load(change.database, change.name)
            if loaded is None or loaded.metadata.table_uuid != change.id:
                raise OutcomeUnknown(
                    f"{full_name}: whether it was created isn't known; look for it with SHOW "
                    f"TABLES, and create it again where it isn't there: {error}"
                ) from error
        self.remember(
            KnownTable(
                id=change.id, schema=change.database, name=change.name, location=change.location
            )
        )

    def _send_name_change(self, change: NameChange) -> None:
        """Drop or rename a table. Raises InvalidRequest if the catalog refuses it, OutcomeUnknown
        if the response is lost.
        """
        assert isinstance(change, DroppedTable | RenamedTable)
        known = self._known[change.id]
        path = self.path(known.schema, known.name)
        try:
            if isinstance(change, DroppedTable):
                self.client.send("DELETE", path)
            elif change.database.lower() != known.schema.lower():
                raise InvalidRequest(
                    f"{known.full_name}: a Unity Catalog renames a table within its schema"
                )
            else:
                self.client.send("POST", f"{path}/rename", {"new-name": change.name})
        except RequestRefused as error:
            raise InvalidRequest(f"{known.full_name}: nothing was changed: {error}") from error
        except ResponseLost as error:
            raise OutcomeUnknown(
                f"{known.full_name}: whether that was done isn't known; look with SHOW TABLES: "
                f"{error}"
            ) from error


def head_of(loaded: LoadedTable, table_id: str) -> Head | None:
    """Return a table's head as the catalog has it; None if the response is about another table.

    Raises InvalidRequest for a table whose commits the catalog doesn't manage.
    """
    if loaded.metadata.table_uuid != table_id:
        return None
    version = loaded.latest_table_version
    if version is None:
        raise InvalidRequest(
            f"{loaded.metadata.location}: its commits aren't made by the catalog any more"
        )
    pending = [
        TableCommit(
            table_id=table_id, version=commit.version, staged=commit.file_name, is_shared=True
        )
        for commit in loaded.commits or ()
    ]
    return Head(version=version, pending=tuple(sorted(pending, key=lambda commit: commit.version)))
