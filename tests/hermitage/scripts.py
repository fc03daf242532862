"""Hermitage's tests as data: what two or three sessions do, in this order, and what would be wrong.

The anomalies and their scripts are those of the Hermitage project (Martin Kleppmann, CC BY 4.0),
after Adya's definitions; "two writers" and "in writes" are ours. Row 1 is in table {one} and row
2 in table {two}, which may be one table or two; {both} is all rows of them. All sessions have
begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROWS: tuple[tuple[int, int], ...] = ((1, 10), (2, 20))
"""(id, value) before every script."""

Row = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a script's sessions saw, and what they left."""

    reads: Mapping[str, tuple[tuple[Row, ...], ...]]
    """Per session, the rows of its SELECTs, in order; rows by id."""
    committed: frozenset[str]
    final: tuple[Row, ...]

    def values(self, session: str) -> list[int]:
        """All values that the session has read, in order."""
        return [value for rows in self.reads.get(session, ()) for _, value in rows]

    def first(self, session: str) -> int | None:
        """The first value that the session has read, if it has."""
        return next(iter(self.values(session)), None)

    def rows(self, session: str, number: int) -> tuple[Row, ...] | None:
        """The rows of one SELECT, if the session came that far."""
        reads = self.reads.get(session, ())
        return reads[number] if number < len(reads) else None

    def all_committed(self, *sessions: str) -> bool:
        return self.committed >= set(sessions)


@dataclass(frozen=True, slots=True)
class Script:
    """One anomaly, as steps `session: SQL`."""

    name: str
    title: str
    anomaly: str
    """In a sentence, what must not be seen."""
    occurred: Callable[[Seen], bool]
    steps: str
    across: str | None = None
    """The steps for two tables, where they aren't the same text."""

    def lines(self, tables: int) -> list[tuple[str, str]]:
        """(session, SQL) of each step."""
        text = self.across if tables == 2 and self.across is not None else self.steps
        found = []
        for line in text.strip().splitlines():
            session, _, sql = line.strip().partition(": ")
            found.append((session, sql))
        return found


def _torn(seen: Seen) -> bool:
    """T3 read both rows twice: a mix of two transactions, or rows that went back."""
    first, second, second_again, first_again = seen.values("T3")
    whole = {(10, 20), (11, 19), (12, 18)}
    pairs = ((first, second), (first_again, second_again))
    return any(pair not in whole for pair in pairs) or pairs[0] != pairs[1]


SCRIPTS: tuple[Script, ...] = (
    Script(
        "G0",
        "write cycles (dirty writes)",
        "the rows are left with one's change to one row and the other's to the other",
        lambda seen: seen.final not in {((1, 11), (2, 21)), ((1, 12), (2, 22))},
        """
        T1: UPDATE {one} SET value = 11 WHERE id = 1
        T2: UPDATE {one} SET value = 12 WHERE id = 1
        T2: UPDATE {two} SET value = 22 WHERE id = 2
        T1: UPDATE {two} SET value = 21 WHERE id = 2
        T1: COMMIT
        T2: COMMIT
        """,
    ),
    Script(
        "G1a",
        "aborted reads",
        "T2 reads a value that T1 rolls back",
        lambda seen: 101 in seen.values("T2"),
        """
        T1: UPDATE {one} SET value = 101 WHERE id = 1
        T2: SELECT * FROM {both}
        T1: ROLLBACK
        T2: SELECT * FROM {both}
        T2: COMMIT
        """,
    ),
    Script(
        "G1b",
        "intermediate reads",
        "T2 reads a value that T1 replaces before it commits",
        lambda seen: 101 in seen.values("T2"),
        """
        T1: UPDATE {one} SET value = 101 WHERE id = 1
        T2: SELECT * FROM {both}
        T1: UPDATE {one} SET value = 11 WHERE id = 1
        T1: COMMIT
        T2: SELECT * FROM {both}
        T2: COMMIT
        """,
    ),
    Script(
        "G1c",
        "circular information flow",
        "T1 and T2 read what the other has written and not committed",
        lambda seen: 22 in seen.values("T1") and 11 in seen.values("T2"),
        """
        T1: UPDATE {one} SET value = 11 WHERE id = 1
        T2: UPDATE {two} SET value = 22 WHERE id = 2
        T1: SELECT * FROM {two} WHERE id = 2
        T2: SELECT * FROM {one} WHERE id = 1
        T1: COMMIT
        T2: COMMIT
        """,
    ),
    Script(
        "OTV",
        "observed transaction vanishes",
        "T3 sees one of T1's two changes, or both and then T2's",
        _torn,
        """
        T1: UPDATE {one} SET value = 11 WHERE id = 1
        T1: UPDATE {two} SET value = 19 WHERE id = 2
        T2: UPDATE {one} SET value = 12 WHERE id = 1
        T1: COMMIT
        T3: SELECT * FROM {one} WHERE id = 1
        T3: SELECT * FROM {two} WHERE id = 2
        T2: UPDATE {two} SET value = 18 WHERE id = 2
        T2: COMMIT
        T3: SELECT * FROM {two} WHERE id = 2
        T3: SELECT * FROM {one} WHERE id = 1
        T3: COMMIT
        """,
    ),
    Script(
        "PMP",
        "predicate-many-preceders",
        "T1's second condition finds a row that was inserted after its first",
        lambda seen: seen.rows("T1", 0) == () and seen.rows("T1", 1) == ((3, 30),),
        """
        T1: SELECT * FROM {both} WHERE value = 30
        T2: INSERT INTO {two} VALUES (3, 30)
        T2: COMMIT
        T1: SELECT * FROM {both} WHERE value % 3 = 0
        T1: COMMIT
        """,
    ),
    Script(
        "PMP, write",
        "the same, of a condition that deletes",
        "T2 deletes as if T1 had been before it for one row and after it for the other",
        lambda seen: seen.all_committed("T1", "T2") and seen.final not in {((1, 20),), ((2, 30),)},
        """
        T1: UPDATE {both} SET value = value + 10
        T2: DELETE FROM {both} WHERE value = 20
        T1: COMMIT
        T2: COMMIT
        """,
        """
        T1: UPDATE {one} SET value = value + 10
        T1: UPDATE {two} SET value = value + 10
        T2: DELETE FROM {one} WHERE value = 20
        T2: DELETE FROM {two} WHERE value = 20
        T1: COMMIT
        T2: COMMIT
        """,
    ),
    Script(
        "P4",
        "lost update",
        "both have read the same row and update it, and both commit",
        lambda seen: seen.all_committed("T1", "T2") and seen.rows("T1", 0) == seen.rows("T2", 0),
        """
        T1: SELECT * FROM {one} WHERE id = 1
        T2: SELECT * FROM {one} WHERE id = 1
        T1: UPDATE {one} SET value = 11 WHERE id = 1
        T2: UPDATE {one} SET value = 11 WHERE id = 1
        T1: COMMIT
        T2: COMMIT
        """,
        """
        T1: SELECT * FROM {both}
        T2: SELECT * FROM {both}
        T1: UPDATE {one} SET value = 11 WHERE id = 1
        T1: UPDATE {two} SET value = 21 WHERE id = 2
        T2: UPDATE {two} SET value = 21 WHERE id = 2
        T1: COMMIT
        T2: COMMIT
        """,
    ),
    Script(
        "G-single",
        "read skew",
        "T1 reads row 1 from before T2 and row 2 from after it",
        lambda seen: seen.values("T1") == [10, 18],
        """
        T1: SELECT * FROM {one} WHERE id = 1
        T2: SELECT * FROM {both}
        T2: UPDATE {one} SET value = 12 WHERE id = 1
        T2: UPDATE {two} SET value = 18 WHERE id = 2
        T2: COMMIT
        T1: SELECT * FROM {two} WHERE id = 2
        T1: COMMIT
        """,
    ),
    Script(
        "G-single, predicate",
        "read skew of conditions",
        "T1's second condition is asked after T2's changes, its first before them",
        lambda seen: seen.first("T1") == 10 and not {12, 18}.isdisjoint(seen.values("T1")),
        """
        T1: SELECT * FROM {one} WHERE value % 5 = 0
        T2: UPDATE {one} SET value = 12 WHERE value = 10
        T2: COMMIT
        T1: SELECT * FROM {both} WHERE value % 3 = 0
        T1: COMMIT
        """,
        """
        T1: SELECT * FROM {one} WHERE value % 5 = 0
        T2: UPDATE {one} SET value = 12 WHERE value = 10
        T2: UPDATE {two} SET value = 18 WHERE value = 20
        T2: COMMIT
        T1: SELECT * FROM {two} WHERE value % 3 = 0
        T1: COMMIT
        """,
    ),
    Script(
        "G-single, write",
        "read skew, then a condition that deletes",
        "T1 has read row 1 from before T2 and deletes what T2 has changed, and both commit",
        lambda seen: (
            seen.all_committed("T1", "T2") and seen.first("T1") == 10 and 20 in seen.values("T2")
        ),
        """
        T1: SELECT * FROM {one} WHERE id = 1
        T2: SELECT * FROM {both}
        T2: UPDATE {one} SET value = 12 WHERE id = 1
        T2: UPDATE {two} SET value = 18 WHERE id = 2
        T2: COMMIT
        T1: DELETE FROM {two} WHERE value = 20
        T1: COMMIT
        """,
    ),
    Script(
        "G-single, two writers",
        "read skew over two transactions, the second of which has read the first",
        "T1 reads row 1 from before T2, and row 2 from after T3, which saw T2's change",
        lambda seen: (seen.values("T1"), seen.values("T3")) == ([10, 18], [12]),
        """
        T1: SELECT * FROM {one} WHERE id = 1
        T2: UPDATE {one} SET value = 12 WHERE id = 1
        T2: COMMIT
        T3: SELECT * FROM {one} WHERE id = 1
        T3: UPDATE {two} SET value = 18 WHERE id = 2
        T3: COMMIT
        T1: SELECT * FROM {two} WHERE id = 2
        T1: COMMIT
        """,
    ),
    Script(
        "G2-item",
        "write skew",
        "both have read both rows, each changes another one, and both commit",
        lambda seen: (
            seen.all_committed("T1", "T2") and seen.rows("T1", 0) == seen.rows("T2", 0) == ROWS
        ),
        """
        T1: SELECT * FROM {both} WHERE id IN (1, 2)
        T2: SELECT * FROM {both} WHERE id IN (1, 2)
        T1: UPDATE {one} SET value = 11 WHERE id = 1
        T2: UPDATE {two} SET value = 21 WHERE id = 2
        T1: COMMIT
        T2: COMMIT
        """,
    ),
    Script(
        "G2",
        "write skew of conditions",
        "both have found no such row, each inserts one, and both commit",
        lambda seen: (
            seen.all_committed("T1", "T2") and seen.rows("T1", 0) == seen.rows("T2", 0) == ()
        ),
        """
        T1: SELECT * FROM {both} WHERE value % 3 = 0
        T2: SELECT * FROM {both} WHERE value % 3 = 0
        T1: INSERT INTO {one} VALUES (3, 30)
        T2: INSERT INTO {two} VALUES (4, 42)
        T1: COMMIT
        T2: COMMIT
        """,
    ),
    Script(
        "G2, two edges",
        "a read-only transaction that sees the impossible",
        "T3 sees T2's change without T1's, T1 none, and all three commit",
        lambda seen: (
            seen.all_committed("T1", "T2", "T3")
            and (seen.values("T1"), seen.values("T3")) == ([10, 20], [10, 25])
        ),
        """
        T1: SELECT * FROM {both}
        T2: UPDATE {two} SET value = value + 5 WHERE id = 2
        T2: COMMIT
        T3: SELECT * FROM {both}
        T3: COMMIT
        T1: UPDATE {one} SET value = 0 WHERE id = 1
        T1: COMMIT
        """,
    ),
    Script(
        "G2, in writes",
        "write skew of what the writes themselves read",
        "each inserts the sum of all rows, and neither sum has the other one in it",
        lambda seen: {(3, 30), (4, 30)} <= set(seen.final),
        """
        T1: INSERT INTO {one} SELECT 3, sum(value) FROM {both}
        T2: INSERT INTO {two} SELECT 4, sum(value) FROM {both}
        T1: COMMIT
        T2: COMMIT
        """,
    ),
)
