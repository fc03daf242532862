"""The dialect of SQLAlchemy on a lake behind a server."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

import txlake
from tests.dbapi.served import READER, TOKEN, Served
from tests.sqlalchemy.test_dialect import Author, Base, level_of, metadata, pieces, stock
from txlake.sqlalchemy.dialect import SessionPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def served(spark: SparkSession, tmp_path: Path) -> Iterator[Served]:
    with txlake.connect(str(tmp_path / "lake"), spark=spark) as lake:
        made = Served(lake)
        with made.client:
            made.start()
            yield made
            made.stop()


@pytest.fixture
def engine(served: Served) -> Iterator[Engine]:
    made = sa.create_engine(url(served, TOKEN))
    metadata.create_all(made)
    with made.begin() as connection:
        connection.execute(sa.insert(stock), [{"item": "nails", "pieces": 300}])
    yield made
    made.dispose()


def url(served: Served, token: str) -> str:
    return served.dsn.replace("://", f"://:{token}@")


def test_core_and_orm(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    at = datetime.datetime.fromisoformat("2026-03-29 02:30")
    with Session(engine) as session:
        author = Author(name="Ada")
        session.add(author)
        session.flush()
        assert author.id == 1
        session.execute(sa.insert(stock).values(item="glue", at=at))
        session.commit()
        assert session.scalar(sa.select(stock.c.at).where(stock.c.item == "glue")) == at
    found = sa.inspect(engine)
    assert sorted(found.get_table_names()) == ["authors", "stock"]
    assert found.get_pk_constraint("authors")["constrained_columns"] == ["id"]
    with engine.connect() as connection:
        assert level_of(connection) == "WRITE SERIALIZABLE"
        assert str(connection.default_isolation_level) == "WRITE SERIALIZABLE"
    with engine.connect().execution_options(isolation_level="SNAPSHOT") as connection:
        assert level_of(connection) == "SNAPSHOT"
        assert pieces(connection) == 300
    with engine.connect() as connection:
        assert level_of(connection) == "WRITE SERIALIZABLE"


def test_a_conflict_keeps_its_evidence(engine: Engine) -> None:
    change = sa.update(stock).where(stock.c.item == "nails")
    with engine.connect() as winner, engine.connect() as loser:
        winner.execute(change.values(pieces=5))
        loser.execute(change.values(pieces=6))
        winner.commit()
        with pytest.raises(sa.exc.OperationalError) as caught:
            loser.commit()
        lost: Any = caught.value.orig
        assert lost.retry
        assert lost.evidence.table == "default.stock"
        assert not caught.value.connection_invalidated


def test_an_ended_session_is_replaced(engine: Engine, served: Served) -> None:
    assert isinstance(engine.pool, SessionPool)
    assert engine.pool._recycle == 240
    with engine.connect() as connection:
        served.end_idle_sessions()
        with pytest.raises(sa.exc.OperationalError, match="session") as caught:
            pieces(connection)
        assert caught.value.connection_invalidated
    with engine.connect() as connection:
        assert pieces(connection) == 300
    pinging = sa.create_engine(url(served, TOKEN), pool_pre_ping=True, pool_recycle=1000)
    assert pinging.pool._recycle == 1000
    for _ in range(2):
        with pinging.connect() as connection:
            assert pieces(connection) == 300
        served.end_idle_sessions()
    pinging.dispose()


def test_tokens(served: Served, engine: Engine) -> None:
    reader = sa.create_engine(url(served, READER))
    with reader.connect() as connection:
        assert pieces(connection) == 300
        with pytest.raises(sa.exc.ProgrammingError, match="may only read"):
            connection.execute(sa.delete(stock))
    reader.dispose()
    with pytest.raises(sa.exc.ProgrammingError, match="token"):
        sa.create_engine(url(served, "wrong")).connect()
