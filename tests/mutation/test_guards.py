"""The list of guards matches the source, and every mutant on it has a killer or a reason."""

from __future__ import annotations

import ast
from pathlib import Path

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


def test_the_list_matches_the_source() -> None:
    every, entries = listing.all_mutants(), listing.load()
    new = [one.key for one in every if listing.entry_of(one, entries) is None]
    gone = sorted(entries.keys() - {one.key for one in every})
    assert not new, f"write a test that fails without it, then `make guards`: {new}"
    assert not gone, f"`make guards` takes out what isn't in the source any more: {gone}"


def test_each_mutant_is_checked_by_a_test_of_its_folder() -> None:
    prefixes = [
        argument.value
        for path in sorted(Path(__file__).parent.glob("test_killed_in_*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "survivors"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]
    keys = [one.key for one in listing.all_mutants()]
    unchecked = [key for key in keys if not key.startswith(tuple(map(str, prefixes)))]
    assert not unchecked, f"name its folder in a test_killed_in_*.py: {unchecked[:5]}"


def test_few_mutants_are_equivalent_and_each_has_a_reason() -> None:
    entries = listing.load()
    reasons = [one.reason for one in entries.values() if one.killer is None]
    assert all(reason and len(reason) > 20 for reason in reasons)
    assert len(reasons) < REASONS_MAX * len(entries)


def test_guards_are_found_in_the_source() -> None:
    found = guards.walk("a.module", SOURCE)
    assert [(mutant.guard, mutant.text) for mutant in found] == [
        ("entry of LIMITS 1 without", "LIMITS[one]"),
        ("entry of LIMITS 2 without", "LIMITS[two]"),
        ("if 1 never", "if self.x > 1 and (not (self.y or self.z))"),
        ("if 1 always", "if self.x > 1 and (not (self.y or self.z))"),
        ("if 1 side 1", "and self.x > 1"),
        ("if 1 side 2", "and not (self.y or self.z)"),
        ("if 1 side 2.not.1", "or self.y"),
        ("if 1 side 2.not.2", "or self.z"),
        ("with 1 without", "with self.lock"),
        ("call 1 without", "check(self)"),
        ("return 1 side 1", "or self.a"),
        ("return 1 side 2", "or self.b"),
        ("except 1 uncaught", "except KeyError"),
        ("raise 1 without", "raise ValueError"),
        ("while 1 never", "while self.waits"),
        ("call 2 without", "query.where(a == 1, b == 2).with_for_update()"),
        ("lock 1 without", "query.where(a == 1, b == 2)"),
        ("where 1 without", "a == 1"),
        ("where 2 without", "b == 2"),
    ]
    assert {mutant.place for mutant in found} == {"a.module:<module>", "a.module:A.value"}


def test_a_rename_changes_no_key() -> None:
    renamed = SOURCE.replace("self.x", "self.width").replace("query", "rows").replace("one", "uno")
    before, after = guards.walk("a.module", SOURCE), guards.walk("a.module", renamed)
    assert [mutant.key for mutant in before] == [mutant.key for mutant in after]


def test_a_reason_counts_only_for_its_own_guard() -> None:
    [first, *_] = guards.walk("a.module", SOURCE)
    for text, is_entry in ((first.text, True), ("LIMITS[uno]", False)):
        entries = {first.key: listing.Entry(reason="nobody reads it", text=text)}
        assert (listing.entry_of(first, entries) is not None) == is_entry


def test_a_mutant_runs_in_every_importing_module() -> None:
    from txlake.conflict.levels import parse_level
    from txlake.errors import InvalidRequest

    (mutant,) = (
        one
        for one in guards.mutants_of("conflict.levels")
        if (one.function, one.guard) == ("parse_level", "if 1 never")
    )
    with switched_off(mutant):
        assert parse_level("none") is None
    with pytest.raises(InvalidRequest):
        parse_level("none")


def test_a_table_entry_is_removed_in_every_importing_module() -> None:
    from txlake.conflict import check, rules
    from txlake.conflict.row_rules import rows_added

    (mutant,) = (
        one for one in guards.mutants_of("conflict.rules") if one.text == "RULES[rows_added]"
    )
    defaults = check.check_all.__defaults__
    with switched_off(mutant):
        assert rows_added not in rules.RULES
        assert rows_added not in rules.RULES_AFTER_SELECTS
        assert check.check_all.__defaults__ == (rules.RULES,)
    assert rows_added in rules.RULES
    assert check.check_all.__defaults__ == defaults
