"""Every error that txlake raises, grouped by what the caller does next.

    TxlakeError
    ├── Conflict                      run it again (also: DeltaConcurrentModificationException,
    │   │                             ConcurrentWriteException)
    │   ├── ConcurrentAppendException
    │   ├── ConcurrentDeleteReadException
    │   ├── ConcurrentDeleteDeleteException
    │   ├── MetadataChangedException
    │   ├── ConcurrentTransactionException
    │   ├── ProtocolChangedException
    │   ├── SerializableIsolationViolation        1023
    │   ├── UpdateConflict                        24556, 24706
    │   └── Deadlock                              1205
    ├── Unavailable                   wait and retry
    │   └── LockTimeout                           1222
    ├── OutcomeUnknown                look first: the commit may have happened
    ├── InvalidRequest                change the statement
    ├── CorruptTable                  repair or restore the table
    └── UnsupportedFeature            use an engine that knows the feature

The names and the numbers are those of the systems that users come from: Delta Lake's conflict
exceptions, Redshift's error 1023, Fabric's 24556 and 24706, SQL Server's 1205 and 1222.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from txlake.redaction import redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The facts of one conflict: why a transaction lost.

    Attributes:
        table: the table's name or URL.
        read_version: the version that the losing transaction read; -1 where it read none, as in a
            deadlock.
        winning_version: the version of the commit that it lost to; -1 in a deadlock.
        winning_operation: the winning commit's operation, as its commitInfo names it.
        winning_timestamp_ms: when the winning commit was made, milliseconds since the epoch.
        winning_user: the winning commit's user, where its commitInfo names one.
        rule: the short name of the rule that found the conflict.
        predicate: the reading predicate that the winner's change matches, as its author wrote it.
        files: the conflicting data files, paths as in the log, decoded.
        rows: a sample of the conflicting rows.
        isolation: the level that the transaction was checked at; empty in a deadlock.
        retry: whether running the same transaction again can succeed.
        advice: one sentence on what to do.
        operation: the losing transaction's operation on the table, named as `winning_operation` is;
            None if it hasn't changed the table yet.
        branch_commit: where a branch is published or rebased, which of its commits conflicts, in
            words; None if that isn't known.
    """

    table: str
    read_version: int
    winning_version: int
    winning_operation: str | None = None
    winning_timestamp_ms: int | None = None
    winning_user: str | None = None
    rule: str = ""
    predicate: str | None = None
    files: tuple[str, ...] = ()
    rows: tuple[Mapping[str, object], ...] = ()
    isolation: str = "write_serializable"
    retry: bool = True
    advice: str = ""
    operation: str | None = None
    branch_commit: str | None = None


class TxlakeError(Exception):
    """The root of all errors of txlake. `codes` are the numbers other systems give this error.

    Credentials in the message are redacted.
    """

    codes: ClassVar[tuple[int, ...]] = ()

    def __init__(self, message: str) -> None:
        message = redact(message)
        numbers = ", ".join(str(code) for code in self.codes)
        super().__init__(f"{message} (error {numbers})" if numbers else message)


class Conflict(TxlakeError):
    """Another transaction committed first, and both can't stand. Run this one again."""

    def __init__(self, message: str, evidence: Evidence | None = None) -> None:
        super().__init__(message)
        self.evidence = evidence


class ConcurrentAppendException(Conflict):
    """A winner added rows that this transaction's reads match."""


class ConcurrentDeleteReadException(Conflict):
    """A winner deleted rows that this transaction read."""


class ConcurrentDeleteDeleteException(Conflict):
    """A winner deleted or rewrote rows that this transaction deletes."""


class MetadataChangedException(Conflict):
    """A winner changed the table's metadata, or a metadata domain that both wrote."""


class ConcurrentTransactionException(Conflict):
    """A winner advanced an application id that this transaction depends on."""


class ProtocolChangedException(Conflict):
    """A winner changed the table's protocol, or created the table that both create."""


class SerializableIsolationViolation(Conflict):
    """Under Serializable, what the transaction read is no longer true."""

    codes = (1023,)


class UpdateConflict(Conflict):
    """Two transactions that don't only append changed one table of granularity `table`."""

    codes = (24556, 24706)


class Deadlock(Conflict):
    """This transaction was chosen as the victim of a deadlock."""

    codes = (1205,)


class Unavailable(TxlakeError):
    """A store, the catalog or Spark can't be reached, or refuses for now. Wait and retry."""


class LockTimeout(Unavailable):
    """A lock was not granted within the session's lock timeout."""

    codes = (1222,)


class OutcomeUnknown(TxlakeError):
    """A commit's reply was lost, and looking it up didn't settle it. Look it up again before
    retrying.
    """


class InvalidRequest(TxlakeError):
    """The request can't be carried out as it stands; nothing was written."""


class CorruptTable(TxlakeError):
    """The table's log or one of its files is damaged. The message names the file."""


class UnsupportedFeature(TxlakeError):
    """The table needs a table feature that txlake doesn't have. The message names it."""


DeltaConcurrentModificationException = Conflict
# Delta Spark raises it for a lost commit without checking the winner; txlake checks every winner.
ConcurrentWriteException = Conflict
