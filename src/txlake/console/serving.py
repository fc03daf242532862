"""The console's process: a lake is opened and shown until the process is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txlake.console.app import application
from txlake.errors import InvalidRequest
from txlake.server.serving import Serving, listen, tokens_of
from txlake.session.session import Session
from txlake.spark.plane import SparkPlane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def serve(session: Session, how: Serving, *, started: Callable[[str], None]) -> None:
    """Shows the session's lake until the process is told to stop.

    `started` is called with the console's address once it takes requests.

    Raises InvalidRequest: the token file can't be read, there is none and others than this host
    could look, or the address can't be had.
    """
    tokens = tokens_of(how)
    engine = session.engine
    if isinstance(engine.plane, SparkPlane):
        engine.plane.make_spark = no_spark
    listen(application(engine, tokens, host=how.host), how, started=started)


def no_spark() -> SparkSession:
    """Stands where a Spark session would be started. Raises InvalidRequest."""
    raise InvalidRequest("the console runs without Spark, and this needs it: use SQL for it")
