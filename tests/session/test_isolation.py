"""SET TRANSACTION ISOLATION LEVEL: the level of the session, and the row that says what it did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txlake.catalog import DatabaseEntry
from txlake.conflict.levels import Level
from txlake.errors import InvalidRequest
from txlake.session.isolation import IGNORED, parse_ignored, set_isolation
from txlake.sql.statements import SetIsolation

SNAPSHOT, WRITE, SERIAL = Level.SNAPSHOT, Level.WRITE_SERIALIZABLE, Level.SERIALIZABLE
SET_SNAPSHOT = SetIsolation("snapshot", "SNAPSHOT")
SET_SERIAL = SetIsolation("serializable", "SERIALIZABLE")
WEAK = SetIsolation(None, "READ COMMITTED")
PLAIN = DatabaseEntry(id="1", number=1, name="d", created_ms=0)
STRICT = replace(PLAIN, isolation="serializable")
DEAF = replace(PLAIN, properties={IGNORED: "TRUE"})
HEARS = replace(PLAIN, properties={IGNORED: "false"})


@pytest.mark.parametrize(
    ("statement", "before", "database", "after", "in_force", "message"),
    [
        (SET_SNAPSHOT, None, PLAIN, SNAPSHOT, "snapshot", "from the next on run at this level"),
        (SET_SNAPSHOT, SERIAL, None, SNAPSHOT, "snapshot", "from the next on run at this level"),
        (SET_SERIAL, SNAPSHOT, PLAIN, SERIAL, "serializable", "from the next on"),
        (SET_SERIAL, None, HEARS, SERIAL, "serializable", "from the next on"),
        (SET_SERIAL, None, STRICT, SERIAL, "serializable", "from the next on"),
        (
            SET_SNAPSHOT,
            None,
            STRICT,
            SNAPSHOT,
            "serializable",
            "the session's level is snapshot now; its database d asks for serializable",
        ),
        (WEAK, None, PLAIN, None, "write_serializable", "READ COMMITTED changes nothing"),
        (WEAK, SNAPSHOT, PLAIN, SNAPSHOT, "snapshot", "READ COMMITTED changes nothing"),
        (WEAK, SNAPSHOT, STRICT, SNAPSHOT, "serializable", "READ COMMITTED changes nothing"),
        (SET_SERIAL, None, DEAF, None, "write_serializable", f"ignored: database d has {IGNORED}"),
        (SET_SERIAL, SNAPSHOT, DEAF, SNAPSHOT, "snapshot", "ignored: database d"),
        (WEAK, None, DEAF, None, "write_serializable", "ignored: database d"),
    ],
)
def test_what_it_makes_of_a_session(
    statement: SetIsolation,
    before: Level | None,
    database: DatabaseEntry | None,
    after: Level | None,
    in_force: str,
    message: str,
) -> None:
    made = set_isolation(statement, before, database)
    assert made.level is after
    ((said, level, told),) = made.rows.rows
    assert said == f"SET TRANSACTION ISOLATION LEVEL {statement.spelling}"
    assert level == in_force
    assert message in str(told)
    assert [column.name for column in made.rows.schema.fields] == [
        "statement",
        "isolation",
        "message",
    ]


@pytest.mark.parametrize(
    ("statement", "before", "database", "after", "in_force"),
    [
        (SET_SERIAL, None, None, SERIAL, "serializable"),
        (SET_SERIAL, SNAPSHOT, PLAIN, SERIAL, "serializable"),
        (SET_SNAPSHOT, SERIAL, PLAIN, SERIAL, "serializable"),
        (SET_SNAPSHOT, None, PLAIN, None, "write_serializable"),
        (SET_SNAPSHOT, SNAPSHOT, STRICT, SNAPSHOT, "serializable"),
        (SetIsolation("write_serializable", "x"), None, PLAIN, WRITE, "write_serializable"),
        (SetIsolation("write_serializable", "x"), SNAPSHOT, PLAIN, WRITE, "write_serializable"),
        (WEAK, SNAPSHOT, PLAIN, SNAPSHOT, "snapshot"),
        (SET_SERIAL, SNAPSHOT, DEAF, SNAPSHOT, "snapshot"),
    ],
)
def test_an_open_transactions_level_is_raised_and_never_lowered(
    statement: SetIsolation,
    before: Level | None,
    database: DatabaseEntry | None,
    after: Level | None,
    in_force: str,
) -> None:
    made = set_isolation(statement, None, database, of_open=before, is_open=True)
    assert made.of_open is after
    [(_, told, message)] = made.rows.rows
    assert told == in_force
    assert str(message).endswith(f"never lowered, runs at {in_force}")
    ignored = database is DEAF or statement is WEAK
    assert made.level is (None if ignored else Level(statement.level))


def test_the_property_is_true_or_false() -> None:
    with pytest.raises(InvalidRequest, match="expected true or false"):
        parse_ignored("yes")
