"""Which statements begin a transaction, and which can't be part of one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from txlake.commands import HANDLERS
from txlake.dbapi.exceptions import NotSupportedError
from txlake.session.command import words_of
from txlake.sql.statements import (
    Atomic,
    Begin,
    Commit,
    CreateBranch,
    CreateTag,
    DescribeBranch,
    DropBranch,
    DropTag,
    ExplainPublish,
    Kill,
    PublishBranch,
    RebaseBranch,
    Rollback,
    RollbackTo,
    SetIsolation,
    SetLockTimeout,
    SetXactAbort,
    ShowBranches,
    ShowIsolation,
    ShowTags,
    Statement,
    UseBranch,
)

# They are about the session, or end what is open: none begins a transaction.
_OF_THE_SESSION = (
    Commit,
    DescribeBranch,
    ExplainPublish,
    Kill,
    Rollback,
    SetIsolation,
    SetLockTimeout,
    SetXactAbort,
    ShowBranches,
    ShowIsolation,
    ShowTags,
    UseBranch,
)
_COMMITTING = (Atomic, CreateBranch, CreateTag, DropBranch, DropTag, PublishBranch, RebaseBranch)


class Start(Enum):
    """What a script needs before it runs."""

    NOTHING = "nothing"
    TRANSACTION = "a transaction"


def start_of(statements: Sequence[Statement]) -> Start:
    """Return whether a script begins a transaction where none is open.

    One that says BEGIN itself does so itself. Raises NotSupportedError for a statement that commits
    by itself, and can't be part of a transaction.
    """
    for statement in statements:
        command = HANDLERS.commands.get(type(statement))
        if isinstance(statement, _COMMITTING) or (command is not None and command.is_alone):
            raise NotSupportedError(
                f"{words_of(statement)} commits by itself and can't be part of a transaction: "
                "commit or roll back, and run it with con.autocommit = True"
            )
    if any(isinstance(statement, Begin) for statement in statements):
        return Start.NOTHING
    if all(isinstance(statement, _OF_THE_SESSION) for statement in statements):
        return Start.NOTHING
    return Start.TRANSACTION


def undoes(statements: Sequence[Statement]) -> bool:
    """Return whether a script may undo changes that open results show."""
    return any(isinstance(statement, Rollback | RollbackTo) for statement in statements)
