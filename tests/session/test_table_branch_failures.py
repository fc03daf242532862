"""What a path table's branch is after a statement about it has failed, or met another session's."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.commit.log_of import add
from tests.session.test_table_branches import Place, operations, place
from txlake.commands import HANDLERS, table_branches
from txlake.conflict.levels import Level
from txlake.ddl.table_metadata import metadata_actions
from txlake.errors import (
    ConcurrentAppendException,
    Conflict,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnsupportedFeature,
)
from txlake.protocol.actions import CommitInfo, Protocol
from txlake.protocol.branching import FEATURE, LEVEL, READS
from txlake.session.session import Session

__all__ = ["place"]  # the fixture

Patch = pytest.MonkeyPatch


def raising(error: Exception) -> Callable[..., Any]:
    """A function that raises the error, whatever it is given."""

    def call(*arguments: object, **named: object) -> Any:
        raise error

    return call


# --- CREATE BRANCH ----------------------------------------------------------------------------


def test_if_not_exists_creates_what_is_not_there(place: Place) -> None:
    place.do("CREATE BRANCH IF NOT EXISTS b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.do("CREATE BRANCH IF NOT EXISTS b FOR TABLE {t}")
    assert len(place.rows("SELECT * FROM {b}")) == 4


def test_the_feature_is_added_once(place: Place, monkeypatch: Patch) -> None:
    before = place.main.log.latest().version
    place.do("CREATE BRANCH b FOR TABLE {t}")
    assert place.main.log.latest().version == before + 2
    monkeypatch.setattr(table_branches, "_add_feature", raising(AssertionError("it is there")))
    place.do("CREATE BRANCH c FOR TABLE {t}")
    assert place.main.log.latest().version == before + 3


def test_two_sessions_create_the_first_branches_at_once(place: Place, monkeypatch: Patch) -> None:
    def after_another(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        place.do("CREATE BRANCH c FOR TABLE {t}", Session(place.engine, HANDLERS))
        return metadata_actions(*arguments, **named)

    monkeypatch.setattr("txlake.commands.table_branches.metadata_actions", after_another)
    place.do("CREATE BRANCH b FOR TABLE {t}")
    assert [row[0] for row in place.rows("SHOW BRANCHES FOR TABLE {t}")] == ["b", "c"]


def test_a_table_that_cannot_be_written_gets_no_branch(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}")
    log = place.main.log
    latest = log.latest()
    protocol = Protocol(
        min_reader_version=latest.protocol.min_reader_version,
        min_writer_version=7,
        reader_features=latest.protocol.reader_features,
        writer_features=(*(latest.protocol.writer_features or ()), "unheardOf"),
    )
    log.write_commit(latest.version + 1, [CommitInfo({"operation": "UPGRADE"}), protocol])
    for statement in (
        "CREATE BRANCH c FOR TABLE {t}",
        "CREATE BRANCH IF NOT EXISTS b FOR TABLE {t}",
    ):
        with pytest.raises(UnsupportedFeature, match="unheardOf"):
            place.do(statement)


# --- PUBLISH, REBASE and DROP that fail -------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "fails"),
    [("PUBLISH", "_publish"), ("REBASE", "_rebase"), ("DROP", "_discard")],
)
def test_a_failure_after_the_closing_opens_the_branch_again(
    place: Place, monkeypatch: Patch, statement: str, fails: str
) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    monkeypatch.setattr(table_branches, fails, raising(Unavailable("no answer")))
    with pytest.raises(Unavailable, match="no answer"):
        place.do(f"{statement} BRANCH b FOR TABLE {{t}}")
    monkeypatch.undo()
    place.do(f"INSERT INTO {{b}} VALUES (5, 5); {statement} BRANCH b FOR TABLE {{t}}")


def test_a_branch_stays_closed_while_it_is_unknown_whether_it_ended(
    place: Place, monkeypatch: Patch
) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    monkeypatch.setattr(table_branches, "_publish", raising(OutcomeUnknown("no reply")))
    with pytest.raises(OutcomeUnknown, match="no reply"):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    monkeypatch.undo()
    with pytest.raises(InvalidRequest, match="is closed"):
        place.do("INSERT INTO {b} VALUES (5, 5)")
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert len(place.rows("SELECT * FROM {t}")) == 4


def test_a_failure_to_open_the_branch_again_does_not_hide_the_first_one(
    place: Place, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    monkeypatch.setattr(table_branches, "_publish", raising(InvalidRequest("the first")))
    monkeypatch.setattr(table_branches, "reopen", raising(Unavailable("the second")))
    with caplog.at_level(logging.WARNING), pytest.raises(InvalidRequest, match="the first"):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert "stays closed until it is published, rebased or dropped: the second" in caplog.text


def test_if_exists_drops_what_is_there(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; DROP BRANCH IF EXISTS b FOR TABLE {t}")
    assert place.rows("SHOW BRANCHES FOR TABLE {t}") == []


def test_a_closing_that_loses_to_each_writer_gives_up(place: Place, monkeypatch: Patch) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    monkeypatch.setattr(table_branches, "close", lambda *_: None)
    with pytest.raises(Unavailable, match="100 attempts to close the branch lost"):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    place.do("INSERT INTO {b} VALUES (5, 5)")


# --- closings that are there ------------------------------------------------------------------


def test_a_closing_of_another_session_is_used_as_it_is(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.close("b")
    line = place.line("b")
    closed = line.log.latest().version
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert line.log.latest().version == closed


def test_a_conflict_opens_a_branch_that_another_session_closed(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; UPDATE {b} SET v = 10 WHERE id = 1")
    place.do("UPDATE {t} SET v = 11 WHERE id = 1")
    place.close("b")
    with pytest.raises(Conflict):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert operations(place, "b") == ["OPEN BRANCH", "CLOSE BRANCH", "UPDATE"]


def test_a_conflict_after_the_closing_tells_of_the_branch(place: Place, monkeypatch: Patch) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; UPDATE {b} SET v = 10 WHERE id = 1")
    place.do("UPDATE {t} SET v = 11 WHERE id = 1")
    monkeypatch.setattr(table_branches, "_conflict_now", lambda *_: None)
    with pytest.raises(Conflict, match=r"Of branch 'b' it concerns .*drop the branch"):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")


# --- what was read on the branch --------------------------------------------------------------


def test_a_branch_is_published_at_the_strictest_level_that_it_was_written_at(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}")
    strict = Session(place.engine, HANDLERS, level=Level.SERIALIZABLE)
    place.do("DELETE FROM {b} WHERE v < 3", strict)
    place.do("INSERT INTO {t} VALUES (0, 0)")
    with pytest.raises(ConcurrentAppendException):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")


def test_what_a_newer_release_has_read_is_left_to_it(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}")
    log = place.line("b").log
    tags = {READS: json.dumps({"version": 99}), LEVEL: Level.SERIALIZABLE.value}
    info = CommitInfo({"operation": "WRITE", "tags": tags})
    log.write_commit(log.latest().version + 1, [info, add("x.parquet")])
    with pytest.raises(InvalidRequest, match="a newer txlake has committed on the branch"):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert FEATURE in place.main.log.latest().features


def test_sessions_of_the_statements_end_with_them(place: Place, monkeypatch: Patch) -> None:
    ended: list[Session] = []
    monkeypatch.setattr(Session, "close", lambda session: ended.append(session))
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert len(ended) == 3  # for the feature, the conflict now, and the publication
