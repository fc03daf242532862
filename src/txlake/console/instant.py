"""One instant of the lake: what its transaction did to each table, and which rows it changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from txlake.catalog.commits import CommitEntry
from txlake.console import rows
from txlake.console.rows import Shown
from txlake.console.visits import Values, Visit
from txlake.errors import InvalidRequest, TxlakeError
from txlake.protocol.actions import Add, CommitInfo, Remove
from txlake.protocol.paths import decode_path
from txlake.session.engine import Engine, Handle
from txlake.transaction.table_log import Commit

_FILES_SHOWN = 20
_TABLES_SHOWN = 20
_FACTS = {
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
    """A file that a version added or took away. `deleted`: rows that its vector hides."""

    sign: str
    path: str
    size_bytes: int | None
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What one transaction did to one table.

    Attributes:
        rebased_over: the first and the last version that others made since the one it read.
        problem: why the rest isn't told.
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
    rows: Shown = field(default_factory=Shown)
    problem: str = ""


def look(visit: Visit) -> Values:
    """The page."""
    sequence = visit.path["sequence"]
    found = visit.engine.catalog.of_lake().ledger.commits_at(sequence)
    if not found:
        raise InvalidRequest(f"instant {sequence} made no version of a table")
    return {
        "sequence": sequence,
        "time_ms": found[0].time_ms,
        "transaction": found[0].transaction_id,
        "made": [made(visit.engine, one) for one in found[:_TABLES_SHOWN]],
        "left_out": max(0, len(found) - _TABLES_SHOWN),
    }


def made(engine: Engine, one: CommitEntry) -> Made:
    """What is told of one version."""
    named = one.table or one.table_id
    database, _, table = named.partition(".")
    entry = engine.catalog.find(database, table) if one.table and table else None
    if entry is None or entry.id != one.table_id:
        return Made(table=named, version=one.version, problem="the table is gone")
    handle = engine.at_entry(entry)
    try:
        commit = handle.log.commit(one.version)
    except TxlakeError as error:
        problem = str(error).partition("\n")[0]
        return Made(table=named, version=one.version, is_there=True, problem=problem)
    if commit is None:
        problem = "its file isn't in the log: it was cleaned up, or isn't published yet"
        return Made(table=named, version=one.version, is_there=True, problem=problem)
    return told(engine, handle, named, commit)


def told(engine: Engine, handle: Handle, name: str, commit: Commit) -> Made:
    """What a commit's file says."""
    changes = [one for one in commit.actions if isinstance(one, Add | Remove)]
    files = [_file(one) for one in changes]
    read = None if commit.info is None else commit.info.number("readVersion")
    is_rebased = read is not None and 0 <= read < commit.version - 1
    return Made(
        table=name,
        version=commit.version,
        is_there=True,
        facts=_facts(commit.info),
        metrics=_metrics(commit.info),
        rebased_over=(read + 1, commit.version - 1) if is_rebased and read is not None else None,
        files=files[:_FILES_SHOWN],
        added=sum(1 for one in changes if isinstance(one, Add)),
        removed=sum(1 for one in changes if isinstance(one, Remove)),
        rows=rows.changed(engine, handle, commit),
    )


def _file(one: Add | Remove) -> FileChange:
    vector = one.deletion_vector
    return FileChange(
        sign="+" if isinstance(one, Add) else "−",
        path=decode_path(one.path),
        size_bytes=one.size,
        deleted=0 if vector is None else vector.cardinality,
    )


def _facts(info: CommitInfo | None) -> list[tuple[str, str]]:
    if info is None:
        return []
    found = [(title, info.values.get(key)) for key, title in _FACTS.items()]
    facts = [(title, str(value)) for title, value in found if value not in (None, "")]
    parameters = info.values.get("operationParameters")
    if isinstance(parameters, Mapping):
        facts += [
            (str(key), str(value)[:_PARAMETER_MAX])
            for key, value in parameters.items()
            if value not in (None, "", "[]", [])
        ]
    return facts


def _metrics(info: CommitInfo | None) -> list[tuple[str, str]]:
    found = None if info is None else info.values.get("operationMetrics")
    if not isinstance(found, Mapping):
        return []
    return [(str(key), str(value)) for key, value in found.items() if str(value) != "0"]
