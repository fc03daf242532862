"""SQLAlchemy's own suite on txlake: its databases, and what it can't know."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateSchema, UniqueConstraint
from sqlalchemy.testing import provision

from tests.spark_session import spark_session
from tests.sqlalchemy.suite.left_out import LEFT_OUT

pytest_plugins = ["sqlalchemy.testing.plugin.pytestplugin"]

_ALONE = re.compile(r"\s*(CREATE|ALTER|DROP)( OR REPLACE)? (VIEW|SCHEMA|DATABASE)\b")


@provision.post_configure_engine.for_db("txlake")
def _make_schemas(url: Any, engine: Engine, follower_ident: str | None) -> None:
    spark_session()  # small and quiet; the driver takes the active one
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in ("test_schema", "test_schema_2"):
            connection.execute(CreateSchema(name, if_not_exists=True))


@provision.temp_table_keyword_args.for_db("txlake")
def _temporary(cfg: Any, eng: Engine) -> dict[str, Any]:
    return {}


@compiles(UniqueConstraint, "txlake")
def _leave_out(constraint: UniqueConstraint, compiler: Any, **_: Any) -> None:
    """The suite's tables have UNIQUE constraints whatever is required, and the dialect refuses."""


@event.listens_for(Engine, "before_cursor_execute")
def _begin_alone(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
    """Commit before a view or schema is made: that commits by itself, and the suite does it in the
    middle of a transaction.
    """
    held = connection.connection.dbapi_connection
    if _ALONE.match(statement) and not held.autocommit:
        held.commit()
        held.autocommit = True
        connection.info["txlake_alone"] = True


@event.listens_for(Engine, "after_cursor_execute")
def _end_alone(connection: Any, *_: Any) -> None:
    if connection.info.pop("txlake_alone", False):
        connection.connection.dbapi_connection.autocommit = False


@event.listens_for(Engine, "handle_error")
def _end_failed(context: Any) -> None:
    if context.connection is not None:
        _end_alone(context.connection)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for pattern, reason in LEFT_OUT.items():
            if re.search(pattern, item.nodeid.replace("_txlake+txlake", "")):
                item.add_marker(pytest.mark.skip(reason))
