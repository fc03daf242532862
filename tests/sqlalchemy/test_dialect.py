"""The dialect of SQLAlchemy on a lake in this process: Core, ORM, transactions, errors."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import txlake.dbapi
import txlake.sqlalchemy as tsa
from txlake.sqlalchemy.dialect import TxlakeDialect, TxlakeHttpDialect, TxlakeHttpsDialect

metadata = sa.MetaData()
stock = sa.Table(
    "stock",
    metadata,
    sa.Column("item", sa.String, nullable=False),
    sa.Column("pieces", sa.Integer, comment="on the shelf"),
    sa.Column("price", sa.Numeric(8, 2)),
    sa.Column("at", sa.DateTime),
    comment="of the shop",
    txlake_cluster_by="item",
    txlake_properties={"delta.enableChangeDataFeed": True},
)


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str | None]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A lake with the table `stock` of two rows."""
    made = sa.create_engine(f"txlake:///{tmp_path / 'lake'}")
    metadata.create_all(made)
    with made.begin() as connection:
        rows = [{"item": "nails", "pieces": 300}, {"item": "screws", "pieces": 20}]
        connection.execute(sa.insert(stock), rows)
    yield made
    made.dispose()


def is_spark_started(connection: Connection) -> bool:
    backend = connection.connection.dbapi_connection._backend  # type: ignore[union-attr]
    return bool(backend._session.engine.plane.is_started)


def level_of(connection: Connection) -> str:
    return str(connection.get_isolation_level())


def pieces(connection: Connection, item: str = "nails") -> int | None:
    return connection.scalar(sa.select(stock.c.pieces).where(stock.c.item == item))


@pytest.mark.parametrize(
    ("url", "dialect", "expected"),
    [
        ("txlake:///shop", TxlakeDialect, (["shop"], {})),
        ("txlake:////data/shop", TxlakeDialect, (["/data/shop"], {})),
        ("txlake:///s3://bucket/shop", TxlakeDialect, (["s3://bucket/shop"], {})),
        (
            "txlake:///shop?isolation=snapshot&database=sales",
            TxlakeDialect,
            (["shop"], {"isolation": "snapshot", "database": "sales"}),
        ),
        (
            "txlake+http://:word@host:8080/sales",
            TxlakeHttpDialect,
            (["txlake+http://host:8080"], {"token": "word", "database": "sales"}),
        ),
        (
            "txlake+https://:a%2Fb@host/?timeout_s=5",
            TxlakeHttpsDialect,
            (["txlake+https://host"], {"token": "a/b", "timeout_s": 5.0}),
        ),
    ],
)
def test_urls(url: str, dialect: type[TxlakeDialect], expected: Any) -> None:
    parsed = make_url(url)
    assert parsed.get_dialect() is dialect
    assert dialect().create_connect_args(parsed) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("txlake://host/shop", "expected txlake:///WAREHOUSE"),
        ("txlake:///shop?colour=red", "'colour'; known are catalog, database, isolation, token"),
        ("txlake+http://me:word@host/", "tokens and no users"),
        ("txlake+http:///sales", "expected txlake\\+http://:TOKEN@host"),
        ("txlake+http://host/?timeout_s=soon", "timeout_s: expected a number of seconds"),
        ("txlake+http://host/?isolation=a&isolation=b", "'isolation' is given twice"),
    ],
)
def test_urls_that_say_nothing(url: str, message: str) -> None:
    parsed = make_url(url)
    with pytest.raises(sa.exc.ArgumentError, match=message):
        parsed.get_dialect()().create_connect_args(parsed)


def test_core_without_spark(engine: Engine) -> None:
    with engine.begin() as connection:
        assert pieces(connection) == 300
        at = datetime.datetime.fromisoformat("2026-03-29 02:30")
        changed = connection.execute(
            sa.update(stock).where(stock.c.item == "nails").values(pieces=299, price=None)
        )
        assert changed.rowcount == 1
        connection.execute(
            sa.insert(stock).values(item="glue", pieces=1, price=Decimal("2.50"), at=at)
        )
        other = stock.alias("s")
        found = connection.execute(sa.select(other.c.at, other.c.price).where(other.c.pieces == 1))
        assert found.all() == [(at, Decimal("2.50"))]
        assert connection.execute(sa.delete(stock).where(stock.c.pieces < 100)).rowcount == 2
        assert not is_spark_started(connection)
    with engine.connect() as connection:
        assert pieces(connection) == 299


def test_many_rows_are_one_write(engine: Engine) -> None:
    with engine.begin() as connection:
        rows = [{"item": f"i{n}", "pieces": n} for n in range(2000)]
        assert connection.execute(sa.insert(stock), rows).rowcount == 2000
        [detail] = connection.exec_driver_sql("DESCRIBE DETAIL stock").mappings()
        assert detail["numFiles"] == 2


def test_the_orm(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        first, second = Author(name="Ada"), Author(name=None)
        session.add(first)
        session.flush()
        session.add(second)
        session.commit()
        assert (first.id, second.id) == (1, 2)
        second.name = "Bob"
        session.delete(first)
        session.commit()
        assert session.scalars(sa.select(Author)).one() is second
        assert session.get(Author, 2) is second
        session.add(Author(id=7, name="Cy"))
        with session.begin_nested():
            session.add(Author())
        nested = session.begin_nested()
        session.delete(second)
        session.flush()
        nested.rollback()
        session.commit()
        assert sorted(session.execute(sa.select(Author.id, Author.name)).all()) == [
            (2, "Bob"),
            (3, None),
            (7, "Cy"),
        ]
        assert not is_spark_started(session.connection())


def test_what_the_inspector_finds(engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.schema.CreateSchema("sales"))
        connection.exec_driver_sql("CREATE VIEW sales.few AS SELECT item FROM default.stock")
    inner = sa.MetaData()
    sa.Table("parents", inner, sa.Column("id", sa.BigInteger, primary_key=True), schema="sales")
    sa.Table(
        "children",
        inner,
        sa.Column("id", sa.BigInteger, sa.Identity(always=True, start=5, increment=2)),
        sa.Column("parent", sa.ForeignKey("sales.parents.id", name="of_parent"), nullable=False),
        sa.Column("size", sa.Integer, sa.CheckConstraint("size > 0"), server_default="1"),
        sa.Column("half", sa.Integer, sa.Computed("CAST(size / 2 AS INT)")),
        sa.Column("day", sa.Date),
        sa.CheckConstraint("size < 99", name="small"),
        schema="sales",
        txlake_partitioned_by=["day"],
    )
    inner.create_all(engine)
    found = sa.inspect(engine)
    assert found.get_schema_names() == ["default", "sales"]
    assert (found.default_schema_name, found.get_table_names()) == ("default", ["stock"])
    assert sorted(found.get_table_names("sales")) == ["children", "parents"]
    assert found.get_view_names("sales") == ["few"]
    assert found.get_table_names("nowhere") == found.get_view_names("nowhere") == []
    assert found.has_table("STOCK")
    assert found.has_table("few", "sales")
    assert not found.has_table("few")
    assert found.get_view_definition("few", "sales") == "SELECT item FROM default.stock"
    assert [column["name"] for column in found.get_columns("few", "sales")] == ["item"]
    assert found.get_table_comment("stock") == {"text": "of the shop"}
    assert found.get_table_options("stock") == {
        "txlake_cluster_by": ["item"],
        "txlake_properties": {"delta.enableChangeDataFeed": "true"},
    }
    with pytest.raises(sa.exc.NoSuchTableError, match="nothing"):
        found.get_columns("nothing")
    with pytest.raises(sa.exc.NoSuchTableError, match="stock"):
        found.get_view_definition("stock")

    children = sa.Table("children", sa.MetaData(), autoload_with=engine, schema="sales")
    assert children.dialect_options["txlake"]["partitioned_by"] == ["day"]
    assert [repr(column.type) for column in children.c] == [
        *("BIGINT()", "BIGINT()", "INTEGER()", "INTEGER()", "DATE()")
    ]
    assert [column.nullable for column in children.c] == [False, False, True, True, True]
    identity, computed = children.c.id.identity, children.c.half.computed
    assert identity is not None
    assert computed is not None
    assert (identity.always, identity.start, identity.increment) == (True, 5, 2)
    assert str(computed.sqltext) == "CAST(size / 2 AS INT)"
    [key] = children.c.parent.foreign_keys
    assert (key.target_fullname, key.constraint and key.constraint.name) == (
        "sales.parents.id",
        "of_parent",
    )
    assert found.get_pk_constraint("parents", "sales") == {
        "name": "parents_pk",
        "constrained_columns": ["id"],
    }
    assert found.get_check_constraints("children", "sales") == [
        {"name": "children_check_1", "sqltext": "size > 0"},
        {"name": "small", "sqltext": "size < 99"},
    ]
    assert [found.get_indexes("stock"), found.get_unique_constraints("stock")] == [[], []]


def test_isolation_levels(engine: Engine, tmp_path: Path) -> None:
    with engine.connect() as connection:
        assert level_of(connection) == "WRITE SERIALIZABLE"
        assert str(connection.default_isolation_level) == "WRITE SERIALIZABLE"
    for level in ("SERIALIZABLE", "SNAPSHOT", "WRITE_SERIALIZABLE"):
        with engine.connect().execution_options(isolation_level=level) as connection:
            assert level_of(connection) == level.replace("_", " ")
            held: Any = connection.connection.dbapi_connection
            assert (held.isolation_level, held.autocommit) == (level.lower(), False)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.delete(stock).where(stock.c.item == "nails"))
        assert level_of(connection) == "AUTOCOMMIT"
    with engine.connect() as connection:
        assert level_of(connection) == "WRITE SERIALIZABLE"
        assert pieces(connection) is None
    with pytest.raises(sa.exc.ArgumentError, match="Invalid value 'READ COMMITTED'"):
        engine.connect().execution_options(isolation_level="READ COMMITTED")
    other = sa.create_engine(f"txlake:///{tmp_path / 'lake'}", isolation_level="SNAPSHOT")
    with other.connect() as connection:
        assert level_of(connection) == "SNAPSHOT"
    other.dispose()


def test_a_conflict_keeps_its_evidence(engine: Engine) -> None:
    change = sa.update(stock).where(stock.c.item == "nails")
    with engine.connect() as winner, engine.connect() as loser:
        winner.execute(change.values(pieces=5))
        loser.execute(change.values(pieces=6))
        winner.commit()
        with pytest.raises(sa.exc.OperationalError) as caught:
            loser.commit()
        lost = caught.value.orig
        assert isinstance(lost, txlake.dbapi.OperationalError)
        assert lost.retry
        assert lost.evidence is not None
        assert lost.evidence.table == "default.stock"
        assert not caught.value.connection_invalidated


def test_a_failed_statement_fails_the_transaction_with_its_savepoints(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.execute(sa.delete(stock))
        nested = connection.begin_nested()
        with pytest.raises(sa.exc.IntegrityError, match="NOT_NULL"):
            connection.execute(sa.insert(stock).values(item=None))
        with pytest.raises(sa.exc.ProgrammingError, match="was rolled back"):
            nested.rollback()
        connection.rollback()
        assert pieces(connection) == 300


def test_what_commits_by_itself_needs_autocommit(engine: Engine) -> None:
    with (
        engine.connect() as connection,
        pytest.raises(sa.exc.NotSupportedError, match="autocommit = True"),
    ):
        connection.execute(sa.schema.CreateSchema("sales"))


def test_a_closed_connection_is_replaced(engine: Engine) -> None:
    with engine.connect() as connection:
        held: Any = connection.connection.dbapi_connection
        held.close()
        with pytest.raises(sa.exc.InterfaceError, match="is closed") as caught:
            pieces(connection)
        assert caught.value.connection_invalidated
    with engine.connect() as connection:
        assert pieces(connection) == 300


@pytest.mark.usefixtures("spark")
def test_rows_may_be_fetched_after_the_connection_is_closed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = sa.select(stock.c.item).order_by(stock.c.item)
    with engine.connect() as connection:
        result = connection.execute(query)
    assert result.all() == [("nails",), ("screws",)]
    monkeypatch.setattr("txlake.sqlalchemy.dialect._KEPT_ROWS_MAX", 1)
    with engine.connect() as connection:
        result = connection.execute(query)
    with pytest.raises(sa.exc.ProgrammingError, match="rolled back before all rows were fetched"):
        result.all()
    with engine.connect() as connection:
        result = connection.execute(query)
        assert result.fetchone() == ("nails",)
    assert result.all() == [("screws",)]


def test_migrations(engine: Engine) -> None:
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        operations = Operations(context)
        operations.add_column("stock", sa.Column("shelf", sa.String(9), comment="where"))
        operations.create_table("shelves", sa.Column("name", sa.String(9), nullable=False))
        operations.alter_column("stock", "item", nullable=True)
        wanted = sa.MetaData()
        sa.Table("shelves", wanted, sa.Column("name", sa.String(9), nullable=False))
        changes = compare_metadata(context, wanted)
        assert [change[0] for change in changes] == ["remove_table"]
        connection.rollback()
    assert sa.inspect(engine).get_table_names() == ["stock"]
    assert "shelf" not in {column["name"] for column in sa.inspect(engine).get_columns("stock")}


def test_merge(engine: Engine) -> None:
    upsert = (
        tsa.merge(stock)
        .using([{"item": "nails", "pieces": 5}, {"item": "glue", "pieces": 7}])
        .on("item")
        .when_matched_update()
        .when_not_matched_insert()
    )
    with engine.begin() as connection:
        assert connection.execute(upsert).rowcount == 2
        assert [pieces(connection, one) for one in ("nails", "screws", "glue")] == [5, 20, 7]


@pytest.mark.usefixtures("spark")
def test_merge_with_conditions_and_expressions(engine: Engine) -> None:
    target = stock.alias("t")
    source = sa.select(stock.c.item, stock.c.pieces).where(stock.c.item == "nails")
    made = tsa.merge(target).using(source)
    made = made.on(target.c.item == made.source.c.item)
    made = made.when_matched_delete(made.source.c.pieces > 1000)
    made = made.when_matched_update({target.c.pieces: target.c.pieces + 1, "at": None})
    made = made.when_not_matched_insert({"item": made.source.c.item, "pieces": 1})
    made = made.when_not_matched_by_source_update({"pieces": 0}, target.c.pieces > 100)
    made = made.when_not_matched_by_source_delete()
    with engine.begin() as connection:
        assert connection.execute(made).rowcount == 2
        assert connection.execute(sa.select(stock.c.item, stock.c.pieces)).all() == [("nails", 301)]


def test_merges_that_say_too_little(engine: Engine) -> None:
    made = tsa.merge(stock)
    with pytest.raises(sa.exc.ArgumentError, match="name the source by using"):
        made.on("item")
    with pytest.raises(sa.exc.ArgumentError, match="at least one row"):
        made.using([])
    with pytest.raises(sa.exc.ArgumentError, match="the same keys"):
        made.using([{"item": "a"}, {"pieces": 1}])
    with pytest.raises(sa.exc.ArgumentError, match="stock has no column 'colour'; it has item"):
        made.using([{"colour": "red"}])
    with pytest.raises(sa.exc.ArgumentError, match="stock has no column 'colour'; it has item"):
        made.when_matched_update({"colour": "red"})
    with pytest.raises(sa.exc.CompileError, match="a when_"):
        made.using([{"item": "a"}]).on("item").compile(engine)


@pytest.mark.usefixtures("spark")
def test_pandas_without_a_warning(engine: Engine) -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2, 3],
            "name": ["a", None, "c"],
            "size": [0.5, None, 2.0],
            "at": pd.to_datetime(["2026-01-01 10:00", None, "2026-03-29 02:30"]),
            "ok": [True, False, True],
        }
    )
    assert frame.to_sql("frames", engine) == 3
    assert frame.to_sql("frames", engine, if_exists="append", method="multi") == 3
    back = pd.read_sql("frames", engine, index_col="index")
    pd.testing.assert_frame_equal(back.iloc[:3].reset_index(drop=True), frame, check_dtype=False)
    assert (
        len(pd.read_sql(sa.text("SELECT id FROM frames WHERE id > :n"), engine, params={"n": 1}))
        == 4
    )
    with engine.begin() as connection:
        frame.to_sql("frames", connection, if_exists="replace", index=False)
        assert len(pd.read_sql_table("frames", connection)) == 3
        connection.rollback()
    assert len(pd.read_sql_table("frames", engine)) == 6
