"""The page of one instant: what its transaction did to each table, and which rows it changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from txlake.catalog.commits import CommitEntry
from txlake.commit.table_log import Commit
from txlake.console import rows
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.console.rows import RowSample
from txlake.errors import InvalidRequest, TxlakeError
from txlake.protocol.actions import Add, CommitInfo, Remove
from txlake.protocol.paths import decode_path
from txlake.session.engine import Engine, Handle

_FILES_SHOWN_MAX = 20
_TABLES_SHOWN_MAX = 20
_FACT_TITLES = {
    "operation": "operation",
    "userName": "user",
    "isolationLevel": "isolation",
    "engineInfo": "engine",
    "txnId": "transaction",
    "userMetadata": "user metadata",
}
_PARAMETER_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that a version added or removed. `deleted`: rows that its deletion vector hides."""

    sign: str
    path: str
    size_bytes: int | None
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedVersion:
    """The version of a table that one transaction wrote.

    Attributes:
        rebased_over: the first and the last version of others since the one that it read.
        problem: why further fields are empty.
    """

    table: str
    version: int
    is_there: bool = False
    facts: Sequence[tuple[str, str]] = ()
    metrics: Sequence[tuple[str, str]] = ()
    rebased_over: tuple[int, int] | None = None
    files: Sequence[FileChange] = ()
    added: int = 0
    removed: int = 0
    rows: RowSample = field(default_factory=RowSample)
    problem: str = ""


def page(request: PageRequest) -> TemplateValues:
    """Return the values of the page, for the first twenty tables of the instant.

    Raises InvalidRequest for an instant that wrote no table or doesn't exist, Unavailable for one
    that the catalog no longer has.
    """
    sequence = request.path["sequence"]
    entries = request.engine.catalog.of_lake().ledger.commits_at(sequence)
    if not entries:
        raise InvalidRequest(f"instant {sequence} made no version of a table")
    return {
        "sequence": sequence,
        "time_ms": entries[0].time_ms,
        "transaction": entries[0].transaction_id,
        "versions": [
            committed_version(request.engine, entry) for entry in entries[:_TABLES_SHOWN_MAX]
        ],
        "left_out": max(0, len(entries) - _TABLES_SHOWN_MAX),
    }


def committed_version(engine: Engine, commit_entry: CommitEntry) -> CommittedVersion:
    """Return the version of a commit, with what its file records.

    Without a readable file, and for a dropped table, the version has only a `problem`.
    """
    full_name = commit_entry.table or commit_entry.table_id
    database, _, table = full_name.partition(".")
    entry = engine.catalog.find(database, table) if commit_entry.table and table else None
    if entry is None or entry.id != commit_entry.table_id:
        return CommittedVersion(
            table=full_name, version=commit_entry.version, problem="the table is gone"
        )
    handle = engine.at_entry(entry)
    try:
        commit = handle.log.commit(commit_entry.version)
    except TxlakeError as error:
        problem = str(error).partition("\n")[0]
        return CommittedVersion(
            table=full_name, version=commit_entry.version, is_there=True, problem=problem
        )
    if commit is None:
        problem = "its file isn't in the log: it was cleaned up, or isn't published yet"
        return CommittedVersion(
            table=full_name, version=commit_entry.version, is_there=True, problem=problem
        )
    return _version_from_commit(engine, handle, full_name, commit)


def _version_from_commit(
    engine: Engine, handle: Handle, name: str, commit: Commit
) -> CommittedVersion:
    """Return the version with its commit's facts, metrics and first files, and some changed
    rows.
    """
    changes = [action for action in commit.actions if isinstance(action, Add | Remove)]
    files = [_file(action) for action in changes]
    read_version = None if commit.info is None else commit.info.number("readVersion")
    is_rebased = read_version is not None and 0 <= read_version < commit.version - 1
    return CommittedVersion(
        table=name,
        version=commit.version,
        is_there=True,
        facts=_facts(commit.info),
        metrics=_metrics(commit.info),
        rebased_over=(read_version + 1, commit.version - 1)
        if is_rebased and read_version is not None
        else None,
        files=files[:_FILES_SHOWN_MAX],
        added=sum(1 for action in changes if isinstance(action, Add)),
        removed=sum(1 for action in changes if isinstance(action, Remove)),
        rows=rows.changed_rows(engine, handle, commit),
    )


def _file(action: Add | Remove) -> FileChange:
    """Return a file of a commit as the page shows it."""
    vector = action.deletion_vector
    return FileChange(
        sign="+" if isinstance(action, Add) else "−",
        path=decode_path(action.path),
        size_bytes=action.size,
        deleted=0 if vector is None else vector.cardinality,
    )


def _facts(info: CommitInfo | None) -> list[tuple[str, str]]:
    """Return the facts and operation parameters of a commit, without empty ones; empty for None."""
    if info is None:
        return []
    values = [(title, info.values.get(key)) for key, title in _FACT_TITLES.items()]
    facts = [(title, str(value)) for title, value in values if value not in (None, "")]
    parameters = info.values.get("operationParameters")
    if isinstance(parameters, Mapping):
        facts += [
            (str(key), str(value)[:_PARAMETER_MAX])
            for key, value in parameters.items()
            if value not in (None, "", "[]", [])
        ]
    return facts


def _metrics(info: CommitInfo | None) -> list[tuple[str, str]]:
    """Return the operation metrics of a commit, without zeros; empty for None."""
    metrics = None if info is None else info.values.get("operationMetrics")
    if not isinstance(metrics, Mapping):
        return []
    return [(str(key), str(value)) for key, value in metrics.items() if str(value) != "0"]
