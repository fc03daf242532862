"""What the user of a session may do, decided on each statement and the branch that it would change.

A session without a permission belongs to the lake's owner, who may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from txlake.catalog.branch_rows import BranchEntry
from txlake.errors import InvalidRequest
from txlake.session.engine import Engine
from txlake.sql.statements import (
    Atomic,
    CreateBranch,
    DropBranch,
    ExplainPublish,
    LockTable,
    RebaseBranch,
    Statement,
)


class NotPermitted(InvalidRequest):
    """The session's user may not do that."""


class Permission(Protocol):
    """What a session's user may do. Each method raises NotPermitted for what he may not."""

    def may_write(self, engine: Engine) -> bool:
        """Return whether the names and tables of the engine may be changed at all."""
        ...

    def require_command(self, engine: Engine, words: str) -> None:
        """Check a statement that changes the lake, on the engine's branch. `words`: its kind."""
        ...

    def require_control(self, engine: Engine, statement: Statement, words: str) -> None:
        """Check a control statement that isn't for readers."""
        ...

    def require_own(self, entry: BranchEntry, what: str) -> None:
        """Check what is done to a whole branch, as it was found by its name."""
        ...


@dataclass(frozen=True, slots=True)
class BranchesOnly:
    """The permission to work on branches of one's own, and to read everything.

    The user creates branches from main or from a branch of his own, writes, rebases and drops them,
    and explains what publishing them would meet. He changes neither main nor others' branches, and
    publishes nothing.

    Attributes:
        user_name: the user, as the branches have it that he has created.
    """

    user_name: str

    def may_write(self, engine: Engine) -> bool:
        return engine.branch is not None and self._owns(engine.branch)

    def require_command(self, engine: Engine, words: str) -> None:
        """Raise NotPermitted unless the engine's branch is the user's."""
        if engine.branch is None:
            raise NotPermitted(
                f"{self.user_name!r} may change branches of its own only, and {words} would change "
                "main: CREATE BRANCH, USE BRANCH, and let somebody else publish it"
            )
        self.require_own(engine.branch, words)

    def require_control(self, engine: Engine, statement: Statement, words: str) -> None:
        """Raise NotPermitted for a control statement that concerns more than the user's branches.

        The statements of a script are checked one by one as they run, and what is done to a branch
        of the lake when it has been found (`require_own`). Branches of path tables have no owners.
        """
        match statement:
            case Atomic():
                return
            case DropBranch(table=None) | ExplainPublish(table=None) | RebaseBranch(table=None):
                return
            case CreateBranch(table=None):
                self._require_origin(engine, statement, words)
            case LockTable():
                self.require_command(engine, words)
            case _:
                raise NotPermitted(
                    f"{self.user_name!r} may change branches of its own only, which {words} isn't: "
                    "let somebody else do it"
                )

    def require_own(self, entry: BranchEntry, what: str) -> None:
        """Raise NotPermitted unless the user has created the branch."""
        if not self._owns(entry):
            raise NotPermitted(
                f"{what}: {entry.kind} {entry.name!r} is {entry.user_name!r}'s, and "
                f"{self.user_name!r} may change branches of its own only"
            )

    def _owns(self, entry: BranchEntry) -> bool:
        return not entry.is_tag and entry.user_name == self.user_name

    def _require_origin(self, engine: Engine, statement: CreateBranch, words: str) -> None:
        """Raise NotPermitted for a branch made of somebody else's, which that one then could
        neither publish nor drop.
        """
        origin = engine.branch
        if statement.origin is not None:
            origin = engine.catalog.of_lake().branches.find(statement.origin)
        if origin is not None:
            self.require_own(origin, words)
