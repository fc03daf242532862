"""A branch of a path table in a bucket: requests in place of a folder's files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.session.offline import plane_without_spark
from tests.storage.conftest import s3_options  # noqa: F401
from txlake.commands import HANDLERS
from txlake.errors import Conflict, InvalidRequest
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.settings import Settings
from txlake.sql import parse
from txlake.sql.statements import TablePath
from txlake.system import System

T = "s3://lake/branches/t"


def session_of(options: dict[str, str]) -> Session:
    """A process's session."""
    system, settings = System(), Settings()
    plane = replace(plane_without_spark(system, settings), storage_options=options)
    engine = Engine(system=system, settings=settings, plane=plane, storage_options=options)
    return Session(engine, HANDLERS)


def do(session: Session, text: str) -> None:
    for statement in parse(text.format(t=f"delta.`{T}`", b=f"delta.`{T}@branch:b`")):
        session.perform(statement)


def files(session: Session, at: str = "") -> int:
    """The number of data files of the newest version."""
    return len(session.snapshot(TablePath(f"{T}{at}")).files)


def test_a_branch_in_a_bucket_is_published_once(s3_options: dict[str, str]) -> None:  # noqa: F811
    first, second = session_of(s3_options), session_of(s3_options)
    do(first, "CREATE TABLE {t} (id BIGINT, v BIGINT); INSERT INTO {t} VALUES (1, 1), (2, 2)")
    do(first, "CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (3, 3)")
    do(second, "INSERT INTO {b} VALUES (4, 4); INSERT INTO {t} VALUES (5, 5)")
    assert [files(first), files(first, "@branch:b")] == [2, 3]
    do(second, "BEGIN; INSERT INTO {b} VALUES (6, 6)")
    do(first, "REBASE BRANCH b FOR TABLE {t}")
    with pytest.raises(InvalidRequest, match="is closed"):
        do(second, "COMMIT")
    assert files(second, "@branch:b") == 4
    do(second, "UPDATE {t} SET v = 9 WHERE id = 1; UPDATE {b} SET v = 8 WHERE id = 1")
    with pytest.raises(Conflict):
        do(first, "PUBLISH BRANCH b FOR TABLE {t}")
    do(first, "DROP BRANCH b FOR TABLE {t}; CREATE BRANCH b FOR TABLE {t}")
    do(second, "INSERT INTO {b} VALUES (7, 7); PUBLISH BRANCH b FOR TABLE {t}")
    with pytest.raises(InvalidRequest, match="was published"):
        do(first, "PUBLISH BRANCH b FOR TABLE {t}")
    assert files(first) == 4
