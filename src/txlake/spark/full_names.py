"""Alias a frame by a name of several parts: columns are found by `db.t.id`, not only `t.id`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from txlake.spark.spark_sessions import dataset_of, is_connect

if TYPE_CHECKING:
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.proto import Relation


def alias_by_full_name(frame: DataFrame, name: tuple[str, ...]) -> DataFrame:
    """Return the rows under an alias whose last part, last two parts, and so on qualify columns.

    `name` is outermost first: ('db', 't').
    """
    *owners, last = name
    if not owners:
        return frame.alias(last)
    if is_connect(frame.sparkSession):
        return _of_connect(frame, owners, last)
    java: Any = frame
    classic: Any = frame.sparkSession
    catalyst = classic._jvm.org.apache.spark.sql.catalyst
    identifier = catalyst.AliasIdentifier(last, java._jseq(owners))
    plan = java._jdf.queryExecution().analyzed()
    session = classic._jsparkSession
    aliased = catalyst.plans.logical.SubqueryAlias(identifier, plan)
    result: DataFrame = type(frame)(dataset_of(classic, session, aliased), classic)
    return result


def _of_connect(frame: DataFrame, owners: list[str], last: str) -> DataFrame:
    """Return the aliased rows on Spark Connect, whose message takes the outer parts as
    qualifier.
    """
    from pyspark.sql.connect.plan import SubqueryAlias

    class Qualified(SubqueryAlias):
        def plan(self, session: SparkConnectClient) -> Relation:
            """Return the message of the aliased relation, with the outer parts in it."""
            relation = super().plan(session)
            relation.subquery_alias.qualifier.extend(owners)
            return relation

    remote: Any = frame
    frame_class: Any = type(frame)
    result: DataFrame = frame_class(Qualified(remote._plan, last), remote._session)
    return result
