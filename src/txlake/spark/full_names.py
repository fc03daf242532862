"""A frame under a name of several parts, by which its columns are found: `db.t.id`, not `t.id`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from txlake.spark.spark_sessions import dataset_of, is_connect

if TYPE_CHECKING:
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.proto import Relation


def alias_by_full_name(frame: DataFrame, name: tuple[str, ...]) -> DataFrame:
    """The rows, whose columns are found by the name's last part, its last two, and so on."""
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
    named = catalyst.plans.logical.SubqueryAlias(identifier, plan)
    found: DataFrame = type(frame)(dataset_of(classic, session, named), classic)
    return found


def _of_connect(frame: DataFrame, owners: list[str], last: str) -> DataFrame:
    from pyspark.sql.connect.plan import SubqueryAlias

    class Qualified(SubqueryAlias):
        def plan(self, session: SparkConnectClient) -> Relation:
            relation = super().plan(session)
            relation.subquery_alias.qualifier.extend(owners)
            return relation

    remote: Any = frame
    kind: Any = type(frame)
    found: DataFrame = kind(Qualified(remote._plan, last), remote._session)
    return found
