"""SET TRANSACTION ISOLATION LEVEL: the level of the session, and the row that says what it did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txlake.catalog import DatabaseEntry
from txlake.conflict.levels import Level
from txlake.errors import InvalidRequest
from txlake.session.isolation import IGNORED, parse_ignored, set_isolation
from txlake.statements import SetIsolation

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
    assert said == f"SET TRANSACTION ISOLATION LEVEL {statement.said}"
    assert level == in_force
    assert message in str(told)
    assert [column.name for column in made.rows.schema.fields] == [
        "statement",
        "isolation",
        "message",
    ]


def test_the_property_is_true_or_false() -> None:
    with pytest.raises(InvalidRequest, match="expected true or false"):
        parse_ignored("yes")
