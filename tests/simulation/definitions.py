"""Definitions beside writers: CREATE, DROP, UNDROP, RENAME, REPLACE, ADD COLUMN, attach and detach.

Owns these programs and their audit. Names change one at a time, in the order of the lake's
instants, so the committed transactions determine the names at the end and each table's rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.programs import Plan, Program, Runner, check_nothing, random_level
from tests.simulation.records import UNREPORTED, Record, ReportedOutcome, Violation
from tests.simulation.statements import COLUMNS, State
from tests.simulation.stores import ROOT

KIND = "definitions"
NAMES = ("x", "y", "z")
GIVEN_AWAY = "w"  # is detached and attached again


@dataclass(slots=True)
class Table:
    """A table as it has to be: the tags of its rows, and its columns.

    `under`: of a dropped table, the one that was dropped from its name before.
    """

    tags: Counter[str] = field(default_factory=Counter)
    columns: tuple[str, ...] = ("k", "v", "tag")
    under: Table | None = None


Names = dict[str, Table]


@dataclass(frozen=True, slots=True)
class Change:
    """A statement on names; `makes` does the same to the names in memory."""

    text: str
    makes: Callable[[Names], None]

    def sql(self, names: Mapping[str, str]) -> str:
        return self.text

    def apply(self, state: State) -> tuple[State, object]:
        raise AssertionError("definitions have an auditor of their own")


def create(name: str) -> Change:
    def makes(names: Names) -> None:
        _expect(name not in names, f"{name} is made, and there is one")
        names[name] = Table()

    return Change(f"CREATE TABLE {name} ({COLUMNS}) USING delta", makes)


def replace(name: str) -> Change:
    def makes(names: Names) -> None:
        names[name] = Table()

    return Change(f"CREATE OR REPLACE TABLE {name} ({COLUMNS}) USING delta", makes)


def drop(name: str) -> Change:
    def makes(names: Names) -> None:
        _expect(name in names, f"{name} is dropped, and isn't there")
        table = names.pop(name)
        table.under = names.get(_dropped(name))
        names[_dropped(name)] = table

    return Change(f"DROP TABLE {name}", makes)


def undrop(name: str) -> Change:
    def makes(names: Names) -> None:
        _expect(name not in names, f"{name} comes back, and there is one")
        _expect(_dropped(name) in names, f"{name} comes back, and wasn't dropped")
        table = names.pop(_dropped(name))
        if table.under is not None:
            names[_dropped(name)] = table.under
        names[name] = table

    return Change(f"UNDROP TABLE {name}", makes)


def _dropped(name: str) -> str:
    """Return the key under which the names in memory keep the newest dropped table of a name."""
    return f"dropped {name}"


def rename(name: str, other: str) -> Change:
    def makes(names: Names) -> None:
        _expect(name in names and other not in names, f"{name} is renamed to {other}: {set(names)}")
        names[other] = names.pop(name)

    return Change(f"ALTER TABLE {name} RENAME TO {other}", makes)


def widen(name: str, column: str) -> Change:
    def makes(names: Names) -> None:
        _expect(column not in names[name].columns, f"{name} gets the column {column} twice")
        names[name].columns += (column,)

    return Change(f"ALTER TABLE {name} ADD COLUMN {column} INT", makes)


def insert(name: str, tag: str) -> Change:
    def makes(names: Names) -> None:
        _expect(name in names, f"a row comes to {name}, which isn't there")
        names[name].tags[tag] += 1

    return Change(f"INSERT INTO {name} (k, v, tag) VALUES (1, 1, '{tag}')", makes)


def nothing(names: Names) -> None:
    """Change no name."""


def definitions(rng: random.Random, _tables: Sequence[str]) -> Plan:
    """Return a plan of definitions and writers."""
    initial: State = {name: ((0, 0, f"{name}0"),) for name in (*NAMES[:2], GIVEN_AWAY)}
    clients = [
        [one for _ in range(rng.randint(1, 3)) for one in _programs(rng)]
        for _ in range(rng.randint(2, 3))
    ]
    return Plan(KIND, initial, clients, random_level(rng), check_nothing, may_be_refused=True)


def _programs(rng: random.Random) -> list[Program]:
    """Return a client's next programs; some restore what they drop."""
    one, other = rng.sample(NAMES, 2)
    column = f"c{rng.randrange(3)}"
    kind = rng.random()

    def body(runner: Runner) -> None:
        tag = runner.tag
        for change in chosen(tag):
            runner.execute(change)

    def back(runner: Runner) -> None:
        runner.execute(undrop(one))

    def chosen(tag: str) -> Sequence[Change]:
        if kind < 0.3:
            return [insert(one, tag)]
        if kind < 0.4:
            return [insert(one, tag), insert(other, tag)]
        if kind < 0.5:
            return [create(one), insert(one, tag)]
        if kind < 0.6:
            return [drop(one)]
        if kind < 0.65:
            return [drop(one), create(one), insert(one, tag)]
        if kind < 0.75:
            return [rename(one, other)]
        if kind < 0.8:
            return [insert(one, tag), rename(one, other), insert(other, f"{tag}+")]
        if kind < 0.85:
            return [replace(one)]
        if kind < 0.9:
            return [widen(one, column)]
        if kind < 0.95:
            return [Change(f"INSERT INTO {GIVEN_AWAY} VALUES (1, 1, '{tag}')", nothing)]
        place = f"delta.`{ROOT}/lake/{GIVEN_AWAY}`"
        return [Change(f"INSERT INTO {place} VALUES (1, 1, '{tag}')", nothing)]

    is_alone = kind < 0.3 or 0.5 <= kind < 0.6 or 0.65 <= kind < 0.75 or kind >= 0.8
    if rng.random() < 0.1:
        is_back = rng.random() < 0.5
        given = Program(
            "give back" if is_back else "give away",
            lambda runner: runner.attach(GIVEN_AWAY) if is_back else runner.detach(GIVEN_AWAY),
            without_transaction=True,
        )
        return [given]
    own = Program("definition", body, autocommit=is_alone and rng.random() < 0.6, attempts=2)
    if not 0.53 < kind < 0.6:
        return [own]
    return [own, Program("definition", back, autocommit=True)]


@dataclass(frozen=True, slots=True)
class TableContent:
    """A table's rows, by their tags, and its columns at the end of a run."""

    tags: Counter[str]
    columns: tuple[str, ...]


def check(
    records: Sequence[Record],
    instants: Mapping[str, int],
    initial: State,
    final: Mapping[str, TableContent],
) -> None:
    """Check names and rows against the committed transactions in their order. Raises Violation."""
    names = {
        name: Table(Counter(tag for _, _, tag in rows))
        for name, rows in initial.items()
        if name != GIVEN_AWAY
    }
    away = Counter(final[GIVEN_AWAY].tags)
    for record in records:
        stands = record.id in instants
        texts = [step.statement.text for step in record.steps if isinstance(step.statement, Change)]
        if any(f"lake/{GIVEN_AWAY}`" in text or f"INTO {GIVEN_AWAY} " in text for text in texts):
            tag = record.client.partition(" ")[0]
            stands = away[tag] > 0
            _expect(away[tag] < 2, f"{tag} is there twice in {GIVEN_AWAY}")
        if record.outcome is ReportedOutcome.COMMITTED and record.steps and not stands:
            raise Violation(f"{record.client} was told it is committed, and it isn't: {texts}")
        if (
            stands
            and record.outcome is not ReportedOutcome.COMMITTED
            and record.outcome not in UNREPORTED
        ):
            raise Violation(
                f"{record.client} was told {record.outcome.value}, and it stands: {texts}"
            )
    for record in sorted(records, key=lambda one: instants.get(one.id, 0)):
        if record.id in instants:
            for step in record.steps:
                if isinstance(step.statement, Change):
                    step.statement.makes(names)
    expected = {name: (table.tags, table.columns) for name, table in names.items() if name in NAMES}
    found = {
        name: (table.tags, table.columns) for name, table in final.items() if name != GIVEN_AWAY
    }
    for name in expected.keys() | found.keys():
        if expected.get(name) != found.get(name):
            raise Violation(f"{name}: expected {expected.get(name)}, found {found.get(name)}")


def _expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise Violation(what)
