"""Timelines of the playground: statements of sessions in turns, and their documented outcomes.

They are data. Sources are named by their pages' titles. This process can execute the statements
itself, without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Row = tuple[object, ...]

SNAPSHOT, WRITE_SERIALIZABLE, SERIALIZABLE = "snapshot", "write_serializable", "serializable"
LEVELS: Mapping[str, str] = {
    SNAPSHOT: "Snapshot",
    WRITE_SERIALIZABLE: "WriteSerializable",
    SERIALIZABLE: "Serializable",
}
"""The isolation levels, with their names for display."""

_CONCURRENT_APPEND = "ConcurrentAppendException"
_CONCURRENT_DELETE = "ConcurrentDeleteDeleteException"
_SERIALIZABLE_VIOLATION = "SerializableIsolationViolation"
_UPDATE_CONFLICT = "UpdateConflict"


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of one session."""

    session: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a timeline at one level.

    Attributes:
        summary: the outcome in a sentence.
        lost: by session, the error that it gets.
        rows: by table, the committed rows at the end, sorted.
        waits: the numbers of the steps, from 1, that wait for a lock.
    """

    summary: str
    lost: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, tuple[Row, ...]]
    waits: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Statements of sessions in turns.

    Attributes:
        name: its id in URLs.
        family: the system whose documentation it is from.
        source: the page's title.
        lesson: what it shows.
        setup: the statements before it; `{level}` is the level in SQL, if the level is the
            database's.
        uses: the database of its sessions, which has the level then; None: the sessions have the
            level.
        outcomes: by level; other levels aren't offered.
    """

    name: str
    family: str
    title: str
    source: str
    lesson: str
    setup: str
    uses: str | None = None
    steps: tuple[Step, ...]
    outcomes: Mapping[str, Outcome]

    @property
    def sessions(self) -> tuple[str, ...]:
        """Return its sessions' names, in order."""
        return tuple(sorted({step.session for step in self.steps}))


def parse_steps(text: str) -> tuple[Step, ...]:
    """Return the steps of lines `session: SQL`."""

    def read() -> Iterator[Step]:
        """Yield the step of each line."""
        for line in text.strip().splitlines():
            session, _, sql = line.strip().partition(": ")
            yield Step(session, sql)

    return tuple(read())


def _at_every_level(outcome: Outcome) -> dict[str, Outcome]:
    return dict.fromkeys(LEVELS, outcome)


# Databricks

_MATRIX = "Isolation levels and write conflicts on Databricks"
_ORDERS = """
CREATE TABLE orders (id INT, status STRING);
INSERT INTO orders VALUES (1, 'open'), (2, 'open')
"""
_SAME_ROW = {"orders": ((1, "paid"), (2, "open"))}

_DATABRICKS = (
    Timeline(
        name="databricks-two-rows",
        family="Databricks",
        title="Two UPDATEs of different rows",
        source="Row-level concurrency (Databricks)",
        lesson=(
            "Both rows are in one data file, and both transactions commit: deletion vectors tell "
            "rows apart. The second one rebases onto the first commit without running its "
            "UPDATE again."
        ),
        setup=_ORDERS,
        steps=parse_steps("""
            T1: BEGIN
            T2: BEGIN
            T1: UPDATE orders SET status = 'paid' WHERE id = 1
            T2: UPDATE orders SET status = 'sent' WHERE id = 2
            T1: COMMIT
            T2: COMMIT
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="Both commit: they changed different rows.",
                rows={"orders": ((1, "paid"), (2, "sent"))},
            )
        ),
    ),
    Timeline(
        name="databricks-one-row",
        family="Databricks",
        title="Two UPDATEs of one row",
        source=_MATRIX,
        lesson=(
            "At every level only the first to commit may change a row that both changed: there is "
            "no lost update. Which rule says so first depends on the level."
        ),
        setup=_ORDERS,
        steps=parse_steps("""
            T1: BEGIN
            T2: BEGIN
            T1: UPDATE orders SET status = 'paid' WHERE id = 1
            T2: UPDATE orders SET status = 'sent' WHERE id = 1
            T1: COMMIT
            T2: COMMIT
        """),
        outcomes={
            SNAPSHOT: Outcome(
                summary="T2 loses: both replaced one row.",
                lost={"T2": _CONCURRENT_DELETE},
                rows=_SAME_ROW,
            ),
            **dict.fromkeys(
                (WRITE_SERIALIZABLE, SERIALIZABLE),
                Outcome(
                    summary="T2 loses: T1's new row is one that T2's condition matches.",
                    lost={"T2": _CONCURRENT_APPEND},
                    rows=_SAME_ROW,
                ),
            ),
        },
    ),
    Timeline(
        name="databricks-delete-append",
        family="Databricks",
        title="DELETE beside a blind INSERT",
        source=_MATRIX,
        lesson=(
            "T2 inserts, without reading, a row that T1's DELETE would have deleted. Only "
            "Serializable insists on the order of the log; WriteSerializable is content with T1 "
            "before T2, whichever commits first."
        ),
        setup=_ORDERS,
        steps=parse_steps("""
            T1: BEGIN
            T1: DELETE FROM orders WHERE status = 'open'
            T2: INSERT INTO orders VALUES (3, 'open')
            T1: COMMIT
        """),
        outcomes={
            **dict.fromkeys(
                (SNAPSHOT, WRITE_SERIALIZABLE),
                Outcome(
                    summary="Both commit, and T2's row stays.", rows={"orders": ((3, "open"),)}
                ),
            ),
            SERIALIZABLE: Outcome(
                summary="T1 loses: its DELETE would have found T2's row.",
                lost={"T1": _CONCURRENT_APPEND},
                rows={"orders": ((1, "open"), (2, "open"), (3, "open"))},
            ),
        },
    ),
    Timeline(
        name="databricks-append-append",
        family="Databricks",
        title="Two INSERTs",
        source=_MATRIX,
        lesson=(
            "Appends that read nothing never conflict, at no level. Neither of them waits: "
            "statements that change rows take no locks against each other."
        ),
        setup=_ORDERS,
        steps=parse_steps("""
            T1: BEGIN
            T2: BEGIN
            T1: INSERT INTO orders VALUES (3, 'open')
            T2: INSERT INTO orders VALUES (4, 'open')
            T2: COMMIT
            T1: COMMIT
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="Both commit.",
                rows={"orders": ((1, "open"), (2, "open"), (3, "open"), (4, "open"))},
            )
        ),
    ),
)

# Write skew

_SSI = "SSI (PostgreSQL wiki)"

_SKEW = (
    Timeline(
        name="overdraft",
        family="Write skew",
        title="Overdraft protection",
        source=_SSI,
        lesson=(
            "Each session checks that both accounts together have enough, and withdraws from "
            "a different one: each is correct alone, both together aren't. A SELECT counts under "
            "Serializable "
            "only."
        ),
        setup="""
            CREATE TABLE accounts (name STRING, balance INT);
            INSERT INTO accounts VALUES ('checking', 500), ('savings', 500)
        """,
        steps=parse_steps("""
            T1: BEGIN
            T2: BEGIN
            T1: SELECT * FROM accounts
            T2: SELECT * FROM accounts
            T1: UPDATE accounts SET balance = balance - 900 WHERE name = 'savings'
            T2: UPDATE accounts SET balance = balance - 900 WHERE name = 'checking'
            T1: COMMIT
            T2: COMMIT
        """),
        outcomes={
            **dict.fromkeys(
                (SNAPSHOT, WRITE_SERIALIZABLE),
                Outcome(
                    summary="Both commit: the accounts are 800 in the red, which neither allowed.",
                    rows={"accounts": (("checking", -400), ("savings", -400))},
                ),
            ),
            SERIALIZABLE: Outcome(
                summary="T2 loses: its SELECT would answer differently now.",
                lost={"T2": _SERIALIZABLE_VIOLATION},
                rows={"accounts": (("checking", 500), ("savings", -400))},
            ),
        },
    ),
    Timeline(
        name="black-and-white",
        family="Write skew",
        title="Black and white",
        source=_SSI,
        lesson=(
            "One session turns black dots white, the other white dots black: run one after "
            "the other, they leave one colour. What an UPDATE's own condition reads counts from "
            "WriteSerializable on; under Snapshot the colours only change places."
        ),
        setup="""
            CREATE TABLE dots (id INT, colour STRING);
            INSERT INTO dots VALUES (1, 'black'), (2, 'white')
        """,
        steps=parse_steps("""
            T1: BEGIN
            T2: BEGIN
            T1: UPDATE dots SET colour = 'white' WHERE colour = 'black'
            T2: UPDATE dots SET colour = 'black' WHERE colour = 'white'
            T1: COMMIT
            T2: COMMIT
        """),
        outcomes={
            SNAPSHOT: Outcome(
                summary="Both commit, and the colours have changed places.",
                rows={"dots": ((1, "white"), (2, "black"))},
            ),
            **dict.fromkeys(
                (WRITE_SERIALIZABLE, SERIALIZABLE),
                Outcome(
                    summary="T2 loses: T1 made a row white that T2 would have made black.",
                    lost={"T2": _CONCURRENT_APPEND},
                    rows={"dots": ((1, "white"), (2, "white"))},
                ),
            ),
        },
    ),
)

# Microsoft Fabric

_FABRIC = "Transactions in Fabric Data Warehouse"
_LOCKING = "Understanding Locking and DDL Blocking in Microsoft Fabric Data Warehouse"
_STOCK = """
CREATE TABLE stock (item STRING, pieces INT){properties};
INSERT INTO stock VALUES ('nails', 10), ('nuts', 20)
"""
_PLAIN_STOCK = _STOCK.replace("{properties}", "")
_STOCK_ROWS = (("nails", 10), ("nuts", 20))
_STOCK_WITH_COLUMN = tuple((*row, None) for row in _STOCK_ROWS)

_OF_FABRIC = (
    Timeline(
        name="fabric-update-conflict",
        family="Microsoft Fabric",
        title="Update conflict by table (24556)",
        source="Resolving Write Conflicts in Microsoft Fabric Data Warehouse",
        lesson=(
            "A Fabric warehouse finds conflicts by table: two sessions that update different rows "
            "conflict all the same. A lake does so with txlake.conflictGranularity = table, and "
            "goes by rows without it."
        ),
        setup=_STOCK.replace(
            "{properties}", " TBLPROPERTIES ('txlake.conflictGranularity' = 'table')"
        ),
        steps=parse_steps("""
            T1: BEGIN TRANSACTION
            T2: BEGIN TRANSACTION
            T1: UPDATE stock SET pieces = 9 WHERE item = 'nails'
            T2: UPDATE stock SET pieces = 19 WHERE item = 'nuts'
            T1: COMMIT
            T2: COMMIT
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="T2 loses with errors 24556 and 24706: T1 changed the same table.",
                lost={"T2": _UPDATE_CONFLICT},
                rows={"stock": (("nails", 9), ("nuts", 20))},
            )
        ),
    ),
    Timeline(
        name="fabric-alter-blocks",
        family="Microsoft Fabric",
        title="ALTER TABLE blocks readers",
        source=_LOCKING,
        lesson=(
            "ALTER TABLE holds Sch-M on the table to the end of its transaction, and a SELECT "
            "needs Sch-S: it waits. T3 sees both in sys.dm_tran_locks, which never waits."
        ),
        setup=_PLAIN_STOCK,
        steps=parse_steps("""
            T1: BEGIN
            T1: ALTER TABLE stock ADD COLUMN shelf INT
            T2: SELECT * FROM stock
            T3: SELECT request_session_id, request_mode, request_status FROM sys.dm_tran_locks
            T1: COMMIT
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="T2's SELECT waits until T1 commits, and answers with the new column.",
                rows={"stock": _STOCK_WITH_COLUMN},
                waits=frozenset({3}),
            )
        ),
    ),
    Timeline(
        name="fabric-alter-waits",
        family="Microsoft Fabric",
        title="ALTER TABLE waits, and all behind it",
        source=_LOCKING,
        lesson=(
            "T1 only reads, but its Sch-S lasts as long as its transaction, and T2's ALTER TABLE "
            "waits for it. Requests are granted in the order in which they came: T3's SELECT waits "
            "behind the one that waits."
        ),
        setup=_PLAIN_STOCK,
        steps=parse_steps("""
            T1: BEGIN
            T1: SELECT * FROM stock
            T2: ALTER TABLE stock ADD COLUMN shelf INT
            T3: SELECT * FROM stock
            T1: COMMIT
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="T2 and T3 wait for T1, and go on when it commits.",
                rows={"stock": _STOCK_WITH_COLUMN},
                waits=frozenset({3, 4}),
            )
        ),
    ),
    Timeline(
        name="fabric-lock-timeout",
        family="Microsoft Fabric",
        title="Lock timeout (1222)",
        source="SET LOCK_TIMEOUT (Transact-SQL)",
        lesson=(
            "Without a timeout a statement waits for its lock for ever. With one it gives up with "
            "error 1222, which says who holds the lock."
        ),
        setup=_PLAIN_STOCK,
        steps=parse_steps("""
            T1: BEGIN
            T1: ALTER TABLE stock ADD COLUMN shelf INT
            T2: SET LOCK_TIMEOUT 0
            T2: UPDATE stock SET pieces = 9 WHERE item = 'nails'
            T1: ROLLBACK
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="T2's UPDATE gives up at once.",
                lost={"T2": "LockTimeout"},
                rows={"stock": _STOCK_ROWS},
            )
        ),
    ),
    Timeline(
        name="fabric-deadlock",
        family="Microsoft Fabric",
        title="Deadlock (1205)",
        source="Deadlocks guide (SQL Server)",
        lesson=(
            "Each session holds what the other one waits for. The youngest transaction is told, "
            "and its rollback lets the other one go on; taking locks in one order avoids it."
        ),
        setup=f"{_PLAIN_STOCK}; CREATE TABLE orders (id INT, item STRING)",
        steps=parse_steps("""
            T1: BEGIN
            T2: BEGIN
            T1: ALTER TABLE stock ADD COLUMN shelf INT
            T2: ALTER TABLE orders ADD COLUMN pieces INT
            T1: SELECT * FROM orders
            T2: SELECT * FROM stock
            T1: COMMIT
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="T2 loses with error 1205, and T1's SELECT goes on.",
                lost={"T2": "Deadlock"},
                rows={"orders": (), "stock": _STOCK_WITH_COLUMN},
                waits=frozenset({5}),
            )
        ),
    ),
    Timeline(
        name="fabric-many-tables",
        family="Microsoft Fabric",
        title="A transaction over two tables, rolled back",
        source=_FABRIC,
        lesson=(
            "A transaction covers any number of tables, all or nothing. T2 never sees its changes: "
            "they aren't committed, and ROLLBACK takes back all of them."
        ),
        setup=f"{_PLAIN_STOCK}; CREATE TABLE orders (id INT, item STRING, pieces INT)",
        steps=parse_steps("""
            T1: BEGIN TRANSACTION
            T1: INSERT INTO orders VALUES (1, 'nails', 4)
            T1: UPDATE stock SET pieces = pieces - 4 WHERE item = 'nails'
            T1: SELECT * FROM stock
            T2: SELECT * FROM stock
            T2: SELECT * FROM orders
            T1: ROLLBACK
            T1: SELECT * FROM stock
        """),
        outcomes=_at_every_level(
            Outcome(
                summary="Neither table has changed.",
                rows={"orders": (), "stock": _STOCK_ROWS},
            )
        ),
    ),
)

# Amazon Redshift

_OF_REDSHIFT = (
    Timeline(
        name="redshift-1023",
        family="Amazon Redshift",
        title="Serializable isolation violation (1023)",
        source="Isolation levels in Amazon Redshift (Database Developer Guide)",
        lesson=(
            "Each session reads the table that the other one inserts into. The database's level "
            "decides: SERIALIZABLE refuses what no order of the two could have given, SNAPSHOT "
            "lets it pass."
        ),
        setup="""
            CREATE DATABASE sales ISOLATION LEVEL {level};
            CREATE TABLE sales.tab1 (id INT);
            CREATE TABLE sales.tab2 (id INT)
        """,
        uses="sales",
        steps=parse_steps("""
            T1: BEGIN
            T2: BEGIN
            T1: SELECT * FROM tab1
            T2: SELECT * FROM tab2
            T1: INSERT INTO tab2 VALUES (1)
            T2: INSERT INTO tab1 VALUES (1)
            T1: COMMIT
            T2: COMMIT
        """),
        outcomes={
            SNAPSHOT: Outcome(
                summary="Both commit: each read a table without the other one's row.",
                rows={"sales.tab1": ((1,),), "sales.tab2": ((1,),)},
            ),
            SERIALIZABLE: Outcome(
                summary="T2 loses with error 1023: T1 inserted into the table that T2 read.",
                lost={"T2": _SERIALIZABLE_VIOLATION},
                rows={"sales.tab1": (), "sales.tab2": ((1,),)},
            ),
        },
    ),
    Timeline(
        name="redshift-selects-outside",
        family="Amazon Redshift",
        title="SELECTs moved out of the transactions",
        source="Troubleshooting serializable isolation errors (Database Developer Guide)",
        lesson=(
            "The documented way out of error 1023, where the answers need not hold at the commit. "
            "A SELECT outside of the transaction doesn't count."
        ),
        setup="""
            CREATE DATABASE sales ISOLATION LEVEL {level};
            CREATE TABLE sales.tab1 (id INT);
            CREATE TABLE sales.tab2 (id INT)
        """,
        uses="sales",
        steps=parse_steps("""
            T1: SELECT * FROM tab1
            T2: SELECT * FROM tab2
            T1: BEGIN
            T2: BEGIN
            T1: INSERT INTO tab2 VALUES (1)
            T2: INSERT INTO tab1 VALUES (1)
            T1: COMMIT
            T2: COMMIT
        """),
        outcomes=dict.fromkeys(
            (SNAPSHOT, SERIALIZABLE),
            Outcome(
                summary="Both commit.",
                rows={"sales.tab1": ((1,),), "sales.tab2": ((1,),)},
            ),
        ),
    ),
)

# Hermitage

_HERMITAGE_SETUP = "CREATE TABLE test (id INT, value INT); INSERT INTO test VALUES (1, 10), (2, 20)"
_NO_CONFLICT = "No conflict: every read is from one snapshot."


def _hermitage(
    name: str, title: str, lesson: str, steps: str, outcomes: Mapping[str, Outcome]
) -> Timeline:
    """Return a timeline of one anomaly; `steps` have the statements after each session's BEGIN."""
    statements = parse_steps(steps)
    begins = tuple(Step(name, "BEGIN") for name in sorted({step.session for step in statements}))
    return Timeline(
        name="hermitage-" + name.lower().replace(" ", "-").replace(",", ""),
        family="Hermitage",
        title=f"{name}: {title}",
        source="Hermitage: Testing transaction isolation levels (Martin Kleppmann)",
        lesson=lesson,
        setup=_HERMITAGE_SETUP,
        steps=begins + statements,
        outcomes=outcomes,
    )


def _hermitage_outcome(
    *rows: Row, summary: str = _NO_CONFLICT, lost: Mapping[str, str] | None = None
) -> Outcome:
    return Outcome(summary=summary, lost=lost or {}, rows={"test": rows})


def _one_loses(session: str, *rows: Row, errors: tuple[str, str, str]) -> dict[str, Outcome]:
    """Return outcomes in which one session gets an error at every level.

    `errors`: by level, in the order of LEVELS.
    """
    reasons = {
        _CONCURRENT_DELETE: "both changed one row",
        _CONCURRENT_APPEND: "the other's new row is one that its condition matches",
        _SERIALIZABLE_VIOLATION: "its SELECT would answer differently now",
    }
    return {
        level: _hermitage_outcome(
            *rows, summary=f"{session} loses: {reasons[error]}.", lost={session: error}
        )
        for level, error in zip(LEVELS, errors, strict=True)
    }


def _refused_by_serializable(allowed: Outcome, refused: Outcome) -> dict[str, Outcome]:
    """Return outcomes that differ at Serializable only."""
    return {SNAPSHOT: allowed, WRITE_SERIALIZABLE: allowed, SERIALIZABLE: refused}


_ROW_ERRORS = (_CONCURRENT_DELETE, _CONCURRENT_APPEND, _CONCURRENT_APPEND)

_HERMITAGE = (
    _hermitage(
        "G0",
        "write cycles (dirty writes)",
        "Two sessions change the same two rows in opposite order. One's change to one row and the "
        "other's to the other must not be left together.",
        """
        T1: UPDATE test SET value = 11 WHERE id = 1
        T2: UPDATE test SET value = 12 WHERE id = 1
        T2: UPDATE test SET value = 22 WHERE id = 2
        T1: UPDATE test SET value = 21 WHERE id = 2
        T1: COMMIT
        T2: COMMIT
        """,
        _one_loses("T2", (1, 11), (2, 21), errors=_ROW_ERRORS),
    ),
    _hermitage(
        "G1a",
        "aborted reads",
        "T1 rolls its change back. T2 must never see it, before the rollback or after it.",
        """
        T1: UPDATE test SET value = 101 WHERE id = 1
        T2: SELECT * FROM test
        T1: ROLLBACK
        T2: SELECT * FROM test
        T2: COMMIT
        """,
        _at_every_level(_hermitage_outcome((1, 10), (2, 20))),
    ),
    _hermitage(
        "G1b",
        "intermediate reads",
        "T1 changes a row twice before it commits. T2 must not see the value in between, and sees "
        "neither: it reads the instant of its first SELECT.",
        """
        T1: UPDATE test SET value = 101 WHERE id = 1
        T2: SELECT * FROM test
        T1: UPDATE test SET value = 11 WHERE id = 1
        T1: COMMIT
        T2: SELECT * FROM test
        T2: COMMIT
        """,
        _at_every_level(_hermitage_outcome((1, 11), (2, 20))),
    ),
    _hermitage(
        "G1c",
        "circular information flow",
        "Each session changes a row and reads the other's. Neither may see what the other one "
        "hasn't committed; that neither sees it is no serial order, which Serializable refuses.",
        """
        T1: UPDATE test SET value = 11 WHERE id = 1
        T2: UPDATE test SET value = 22 WHERE id = 2
        T1: SELECT * FROM test WHERE id = 2
        T2: SELECT * FROM test WHERE id = 1
        T1: COMMIT
        T2: COMMIT
        """,
        _refused_by_serializable(
            _hermitage_outcome((1, 11), (2, 22)),
            _hermitage_outcome(
                (1, 11),
                (2, 20),
                summary="T2 loses: its SELECT would answer differently now.",
                lost={"T2": _SERIALIZABLE_VIOLATION},
            ),
        ),
    ),
    _hermitage(
        "OTV",
        "observed transaction vanishes",
        "T3 reads both of T1's changes while T2 overwrites them. It must not see one of them "
        "vanish: T3 reads one instant to its end.",
        """
        T1: UPDATE test SET value = 11 WHERE id = 1
        T1: UPDATE test SET value = 19 WHERE id = 2
        T2: UPDATE test SET value = 12 WHERE id = 1
        T1: COMMIT
        T3: SELECT * FROM test WHERE id = 1
        T3: SELECT * FROM test WHERE id = 2
        T2: UPDATE test SET value = 18 WHERE id = 2
        T2: COMMIT
        T3: SELECT * FROM test WHERE id = 2
        T3: SELECT * FROM test WHERE id = 1
        T3: COMMIT
        """,
        _one_loses("T2", (1, 11), (2, 19), errors=_ROW_ERRORS),
    ),
    _hermitage(
        "PMP",
        "predicate-many-preceders",
        "T1 asks twice for rows by a condition, and T2 inserts such a row in between. The second "
        "answer must be as old as the first one.",
        """
        T1: SELECT * FROM test WHERE value = 30
        T2: INSERT INTO test VALUES (3, 30)
        T2: COMMIT
        T1: SELECT * FROM test WHERE value >= 30
        T1: COMMIT
        """,
        _at_every_level(_hermitage_outcome((1, 10), (2, 20), (3, 30))),
    ),
    _hermitage(
        "PMP, write",
        "the same, of a condition that deletes",
        "T1 changes the values by which T2 deletes. T2 must not delete as if T1 had been before it "
        "for one row and after it for the other.",
        """
        T1: UPDATE test SET value = value + 10 WHERE value > 0
        T2: DELETE FROM test WHERE value = 20
        T1: COMMIT
        T2: COMMIT
        """,
        _one_loses("T2", (1, 20), (2, 30), errors=_ROW_ERRORS),
    ),
    _hermitage(
        "P4",
        "lost update",
        "Both read a row and write back what they made of it. If both committed, one's change "
        "would be lost without a trace.",
        """
        T1: SELECT * FROM test WHERE id = 1
        T2: SELECT * FROM test WHERE id = 1
        T1: UPDATE test SET value = 11 WHERE id = 1
        T2: UPDATE test SET value = 11 WHERE id = 1
        T1: COMMIT
        T2: COMMIT
        """,
        _one_loses(
            "T2",
            (1, 11),
            (2, 20),
            errors=(_CONCURRENT_DELETE, _CONCURRENT_APPEND, _SERIALIZABLE_VIOLATION),
        ),
    ),
    _hermitage(
        "G-single",
        "read skew",
        "T1 reads row 1 before T2 changes both rows, and row 2 after that. It must not see one old "
        "and one new value.",
        """
        T1: SELECT * FROM test WHERE id = 1
        T2: SELECT * FROM test
        T2: UPDATE test SET value = 12 WHERE id = 1
        T2: UPDATE test SET value = 18 WHERE id = 2
        T2: COMMIT
        T1: SELECT * FROM test WHERE id = 2
        T1: COMMIT
        """,
        _at_every_level(_hermitage_outcome((1, 12), (2, 18))),
    ),
    _hermitage(
        "G-single, predicate",
        "read skew of conditions",
        "The same with conditions over values. T1's second SELECT must find nothing of what T2 "
        "made.",
        """
        T1: SELECT * FROM test WHERE value IN (10, 20)
        T2: UPDATE test SET value = 12 WHERE value = 10
        T2: COMMIT
        T1: SELECT * FROM test WHERE value IN (12, 18)
        T1: COMMIT
        """,
        _at_every_level(_hermitage_outcome((1, 12), (2, 20))),
    ),
    _hermitage(
        "G-single, write",
        "read skew, then a condition that deletes",
        "T1 has read row 1 from before T2, and deletes by a value that T2 has changed. Its "
        "snapshot still has that row; committing the DELETE would undo T2's change.",
        """
        T1: SELECT * FROM test WHERE id = 1
        T2: SELECT * FROM test
        T2: UPDATE test SET value = 12 WHERE id = 1
        T2: UPDATE test SET value = 18 WHERE id = 2
        T2: COMMIT
        T1: DELETE FROM test WHERE value = 20
        T1: COMMIT
        """,
        _one_loses(
            "T1",
            (1, 12),
            (2, 18),
            errors=(_CONCURRENT_DELETE, _CONCURRENT_DELETE, _SERIALIZABLE_VIOLATION),
        ),
    ),
    _hermitage(
        "G-single, two writers",
        "read skew over two transactions",
        "T3 has read T2's change before it made its own. T1 must not see T3's change without T2's, "
        "which was before it.",
        """
        T1: SELECT * FROM test WHERE id = 1
        T2: UPDATE test SET value = 12 WHERE id = 1
        T2: COMMIT
        T3: SELECT * FROM test WHERE id = 1
        T3: UPDATE test SET value = 18 WHERE id = 2
        T3: COMMIT
        T1: SELECT * FROM test WHERE id = 2
        T1: COMMIT
        """,
        _at_every_level(_hermitage_outcome((1, 12), (2, 18))),
    ),
    _hermitage(
        "G2-item",
        "write skew",
        "Both have read both rows, and each changes another one. No serial order gives that: the "
        "second would have read the first one's change.",
        """
        T1: SELECT * FROM test WHERE id IN (1, 2)
        T2: SELECT * FROM test WHERE id IN (1, 2)
        T1: UPDATE test SET value = 11 WHERE id = 1
        T2: UPDATE test SET value = 21 WHERE id = 2
        T1: COMMIT
        T2: COMMIT
        """,
        _refused_by_serializable(
            _hermitage_outcome((1, 11), (2, 21), summary="Both commit: the anomaly is there."),
            _hermitage_outcome(
                (1, 11),
                (2, 20),
                summary="T2 loses: its SELECT would answer differently now.",
                lost={"T2": _SERIALIZABLE_VIOLATION},
            ),
        ),
    ),
    _hermitage(
        "G2",
        "write skew of conditions",
        "Both have found no such row, and each inserts one. The second would have found the first "
        "one's, had they run one by one.",
        """
        T1: SELECT * FROM test WHERE value >= 30
        T2: SELECT * FROM test WHERE value >= 30
        T1: INSERT INTO test VALUES (3, 30)
        T2: INSERT INTO test VALUES (4, 42)
        T1: COMMIT
        T2: COMMIT
        """,
        _refused_by_serializable(
            _hermitage_outcome(
                (1, 10), (2, 20), (3, 30), (4, 42), summary="Both commit: the anomaly is there."
            ),
            _hermitage_outcome(
                (1, 10),
                (2, 20),
                (3, 30),
                summary="T2 loses: its SELECT would answer differently now.",
                lost={"T2": _SERIALIZABLE_VIOLATION},
            ),
        ),
    ),
    _hermitage(
        "G2, two edges",
        "a read-only transaction that sees the impossible",
        "T3 only reads, and sees T2's change without T1's; T1 has seen neither. Without T3 the "
        "order T1, T2 would explain everything, with it none does.",
        """
        T1: SELECT * FROM test
        T2: UPDATE test SET value = value + 5 WHERE id = 2
        T2: COMMIT
        T3: SELECT * FROM test
        T3: COMMIT
        T1: UPDATE test SET value = 0 WHERE id = 1
        T1: COMMIT
        """,
        _refused_by_serializable(
            _hermitage_outcome((1, 0), (2, 25), summary="All three commit: the anomaly is there."),
            _hermitage_outcome(
                (1, 10),
                (2, 25),
                summary="T1 loses: its SELECT would answer differently now.",
                lost={"T1": _SERIALIZABLE_VIOLATION},
            ),
        ),
    ),
)

TIMELINES: Mapping[str, Timeline] = {
    timeline.name: timeline
    for timeline in (*_DATABRICKS, *_SKEW, *_OF_FABRIC, *_OF_REDSHIFT, *_HERMITAGE)
}
"""The timelines by name, in the order of the menu."""
