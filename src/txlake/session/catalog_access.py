"""Access to a lake's catalog, refused while it is lost; transactions beside a session's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from txlake.catalog import TableEntry
from txlake.session.engine import Engine, Handle
from txlake.session.transaction import Transaction


def refuse_lost(engine: Engine) -> None:
    """Raise InvalidRequest or CorruptTable if the lake's catalog has to be recovered first."""
    if engine.recovery_required is not None:
        raise type(engine.recovery_required.error)(str(engine.recovery_required.error))


def handle_entry(handle: Handle) -> TableEntry:
    """Return the catalog's entry of a table of the lake. Not for path tables, which have none."""
    assert handle.entry is not None
    return handle.entry


@contextmanager
def transaction_of(engine: Engine, session_number: Callable[[], int]) -> Iterator[Transaction]:
    """Yield a transaction of its own, which is committed at the end of the block.

    An error in the block or in the commit rolls it back.
    """
    transaction = Transaction(
        id=engine.system.new_id(), engine=engine, session_number=session_number, explicit=False
    )
    try:
        yield transaction
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise


@contextmanager
def registered(engine: Engine, session_number: Callable[[], int]) -> Iterator[str]:
    """Yield the id of a transaction that has an entry in the catalog until the block ends."""
    with transaction_of(engine, session_number) as transaction:
        transaction.registration.make()
        yield transaction.id
