"""Statements of several commits: each step is a transaction of its own on the newest version.

A step is retried after a conflict. Earlier steps stay committed.
"""

from __future__ import annotations

from collections.abc import Callable

from txlake.commit.change import Change
from txlake.errors import Conflict
from txlake.session.catalog_access import transaction_of
from txlake.session.context import Context
from txlake.session.engine import Handle

Step = Callable[[Context, Handle], Change | None]
"""Returns the change to make to the table's newest version; None, or no action, when done."""

_ATTEMPTS = 5


def commit_step(context: Context, handle: Handle, step: Step) -> bool:
    """Commit a step's change in a transaction of its own; return whether there was anything to do.

    Tried up to 5 times; raises the last Conflict, and what the step raises.
    """
    for attempt in range(_ATTEMPTS):
        try:
            with transaction_of(context.engine, context.transaction.session_number) as own:
                change = step(context.in_transaction(own), handle)
                if change is None or not change.actions:
                    return False
                own.stage(handle, change)
            return True
        except Conflict:
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returned or raised")
