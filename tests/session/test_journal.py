"""The conflicts that a process met are kept up to a bound, the newest of them."""

from __future__ import annotations

from txlake.errors import ConcurrentAppendException
from txlake.session.journal import Journal
from txlake.system import System


def test_the_newest_thousand_conflicts_are_kept() -> None:
    journal = Journal(system=System())
    for number in range(1_200):
        journal.met(f"t{number}", ConcurrentAppendException("met"))
    kept = [one.transaction_id for one in journal.conflicts()]
    assert kept == [f"t{number}" for number in range(200, 1_200)]
