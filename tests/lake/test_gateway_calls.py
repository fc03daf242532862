"""How often statements that need no Spark ask a running one, and that they see its settings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import py4j.clientserver
import pytest

import txlake
from tests.lake.rows import query
from txlake.session.command import AsRows


@contextmanager
def counted() -> Iterator[list[str]]:
    """The commands that this thread sends to the JVM in the block."""
    sent: list[str] = []
    thread = threading.get_ident()
    connection = py4j.clientserver.ClientServerConnection
    real = connection.send_command

    def send(self: object, command: str) -> str:
        if threading.get_ident() == thread:
            sent.append(command)
        answer: str = real(self, command)
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connection, "send_command", send)
        yield sent


@pytest.fixture
def t(lake: txlake.Lake) -> txlake.Lake:
    lake.sql("CREATE TABLE t (k STRING, n BIGINT); CREATE TABLE u (k STRING, n BIGINT)")
    assert query(lake, "SELECT count(*) FROM t") == [(0,)]
    return lake


def test_a_transaction_of_rows_asks_few_times(t: txlake.Lake) -> None:
    text = "BEGIN; INSERT INTO t VALUES ('a', 1); INSERT INTO u VALUES ('a', 1); COMMIT"
    t._run_sql(text, None, AsRows())
    with counted() as sent:
        t._run_sql(text, None, AsRows())
    # Two for the settings, two for each INSERT, which makes its session the active one.
    assert len(sent) <= 6, sent


def test_a_statement_of_the_api_asks_few_times(t: txlake.Lake) -> None:
    with counted() as sent:
        t._run_sql("UPDATE t SET n = 2 WHERE k = 'a'", None, AsRows())
    assert len(sent) <= 4, sent


def test_a_setting_holds_from_the_next_statement_on(t: txlake.Lake) -> None:
    metadata = "spark.databricks.delta.commitInfo.userMetadata"
    t.sql(
        f"SET {metadata} = first; INSERT INTO t VALUES ('a', 1); "
        f"SET {metadata} = second; INSERT INTO t VALUES ('a', 1); "
        f"RESET {metadata}; INSERT INTO t VALUES ('a', 1)"
    )
    told = query(t, "SELECT userMetadata FROM (DESCRIBE HISTORY t) WHERE operation = 'WRITE'")
    assert sorted(told, key=str) == [("first",), ("second",), (None,)]


def test_how_texts_are_read_follows_a_setting_of_the_same_text(t: txlake.Lake) -> None:
    quoted = "spark.sql.ansi.doubleQuotedIdentifiers"
    try:
        t.sql(
            f'INSERT INTO t VALUES ("k", 1); SET {quoted} = true; DELETE FROM t WHERE "k" = \'k\''
        )
    finally:
        t.sql(f"RESET {quoted}")
    assert query(t, "SELECT * FROM t") == []


def test_another_threads_setting_is_seen_by_the_next_text(t: txlake.Lake) -> None:
    plane = t._session.engine.plane
    key = "spark.databricks.delta.commitInfo.userMetadata"
    with plane.settings_held():
        assert plane.setting(key, "none") == "none"
        thread = threading.Thread(target=plane.spark.conf.set, args=(key, "set"))
        thread.start()
        thread.join(60)
        assert plane.setting(key, "none") == "none"
        with plane.settings_held():
            assert plane.setting(key, "none") == "none"
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(plane.setting(key, "none")))
        thread.start()
        thread.join(60)
        assert found == ["set"]
        plane.forget_settings()
        assert plane.setting(key, "none") == "set"
    assert plane.setting(key, "none") == "set"
    plane.spark.conf.unset(key)
    assert plane.setting(key, "none") == "none"
