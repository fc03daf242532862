"""The list of guards is that of the source, and every mutant on it has its killer or a reason."""

from __future__ import annotations

import pytest

from tests.mutation import guards, listing
from tests.mutation.switching import switched_off

SOURCE = '''
LIMITS = (one, two)

class A:
    @property
    def value(self):
        """Nothing."""
        if self.x > 1 and not (self.y or self.z):
            raise ValueError("too much")
        with self.lock:
            check(self)
        _logger.info("done")
        try:
            return self.a or self.b
        except KeyError:
            raise ValueError from None
        while self.waits:
            query.where(a == 1, b == 2).with_for_update()
'''

REASONS_MAX = 0.04


def test_the_list_is_that_of_the_source() -> None:
    every = {mutant.key for mutant in listing.every_mutant()}
    known = set(listing.known())
    new, gone = sorted(every - known), sorted(known - every)
    assert not new, f"write a test that fails without it, then `make guards`: {new}"
    assert not gone, f"`make guards` takes out what isn't in the source any more: {gone}"


def test_few_mutants_make_no_difference_and_each_says_why() -> None:
    known = listing.known()
    reasons = [one.reason for one in known.values() if one.killer is None]
    assert all(reason and len(reason) > 20 for reason in reasons)
    assert len(reasons) < REASONS_MAX * len(known)


def test_what_is_a_guard() -> None:
    found = guards.walk("a.module", SOURCE)
    assert [mutant.name for mutant in found] == [
        "<module>: without LIMITS[one]",
        "<module>: without LIMITS[two]",
        "A.value: never if self.x > 1 and (not (self.y or self.z))",
        "A.value: always if self.x > 1 and (not (self.y or self.z))",
        "A.value: if without and self.x > 1",
        "A.value: if without and not (self.y or self.z)",
        "A.value: if without or self.y",
        "A.value: if without or self.z",
        "A.value: without with self.lock",
        "A.value: without check(self)",
        "A.value: return without or self.a",
        "A.value: return without or self.b",
        "A.value: uncaught except KeyError",
        "A.value: without raise ValueError",
        "A.value: never while self.waits",
        "A.value: without query.where(a == 1, b == 2).with_for_update()",
        "A.value: unlocked query.where(a == 1, b == 2)",
        "A.value: where without a == 1",
        "A.value: where without b == 2",
    ]


def test_a_function_loses_its_guard_wherever_it_was_imported() -> None:
    from txlake.conflict.levels import parse_level
    from txlake.errors import InvalidRequest

    (mutant,) = (
        one
        for one in guards.mutants_of("conflict.levels")
        if one.name == "parse_level: never if level is None"
    )
    with switched_off(mutant):
        assert parse_level("none") is None
    with pytest.raises(InvalidRequest):
        parse_level("none")


def test_a_table_loses_its_entry_wherever_it_was_imported() -> None:
    from txlake.conflict import check, rules
    from txlake.conflict.rules_of_rows import rows_added

    (mutant,) = (
        one
        for one in guards.mutants_of("conflict.rules")
        if one.name == "<module>: without RULES[rows_added]"
    )
    defaults = check.check_all.__defaults__
    with switched_off(mutant):
        assert rows_added not in rules.RULES
        assert rows_added not in rules.RULES_AFTER_SELECTS
        assert check.check_all.__defaults__ == (rules.RULES,)
    assert rows_added in rules.RULES
    assert check.check_all.__defaults__ == defaults
