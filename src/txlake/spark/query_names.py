"""Names of tables and views in a query, found by Spark's own parser.

Nothing is analysed or looked up. A plan that may read a table other than by a name in the text
gives no names: `IDENTIFIER` of an expression, a stream, a command.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txlake.spark.spark_sessions import active, is_connect
from txlake.sql.statements import RelationName

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_QUERY_IN_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
_RELATION_CLASS = "UnresolvedRelation"
# Plans without children that read no table.
_LEAF_PLANS = frozenset(
    {
        "LocalRelation",
        "OneRowRelation$",
        "OneRowRelation",
        "ResolvedInlineTable",
        "UnresolvedInlineTable",
        "UnresolvedTableValuedFunction",
    }
)
# Plans between a relation and its alias.
_BEFORE_ALIAS = frozenset({"Sample", "UnresolvedHint"})


class _UnknownNames(Exception):
    """The plan may read tables that its names don't show."""


def relations_in(spark: SparkSession, text: str) -> tuple[RelationName, ...] | None:
    """Return the names that a query reads, except those of its common table expressions.

    A name may come several times, with its position in the text. None for a text that isn't a
    query, for a query that may read tables by other means, and on Spark Connect, whose client has
    no parser.
    """
    if is_connect(spark):
        return None
    from py4j.protocol import Py4JError  # not where Spark is reached by Connect

    try:
        walk = _PlanWalk(spark)
        return tuple(walk.relations(walk.parsed(text), frozenset(), has_alias=False))
    except (_UnknownNames, PySparkException, Py4JError):
        return None


class _PlanWalk:
    """A walk over a plan that Spark's parser made of a text, with py4j."""

    def __init__(self, spark: SparkSession) -> None:
        from py4j.java_gateway import is_instance_of

        self._spark: Any = spark
        self._is_instance = functools.partial(is_instance_of, self._spark.sparkContext._gateway)

    def parsed(self, text: str) -> JavaObject:
        """Return the plan, parsed with this session's settings."""
        with active(self._spark):
            return self._spark._jsparkSession.sessionState().sqlParser().parsePlan(text)

    def relations(
        self, plan: JavaObject, visible: frozenset[str], *, has_alias: bool
    ) -> Iterator[RelationName]:
        """Yield the names in a plan, except `visible`: common table expressions, in lower case.

        `has_alias`: whether the query gives this plan an alias. Raises _UnknownNames where the plan
        may read tables that its names don't show.
        """
        kind = plan.getClass().getSimpleName()
        children = list(_items(plan.children()))
        if self._is_plan(plan, "Command") or self._is_plan(plan, "ParsedStatement"):
            raise _UnknownNames
        if sum(self._is_plan(one, "LogicalPlan") for one in _product(plan)) > len(children):
            raise _UnknownNames
        if kind == _RELATION_CLASS:
            yield from _name(plan, visible, has_alias=has_alias)
        elif not children and kind not in _LEAF_PLANS:
            raise _UnknownNames
        elif kind == "UnresolvedWith":
            for element in _items(plan.cteRelations()):
                name = frozenset({element._1().lower()})
                within = visible | name if plan.allowRecursion() else visible
                inside = element._2().child()
                yield from self.relations(inside, within, has_alias=False)
                visible |= name
        elif kind == "WithWindowDefinition":
            # Spark doesn't count these among the plan's expressions.
            specifications = plan.windowDefinitions().values().toSeq()
            if any(self._holds_query(one) for one in _items(specifications)):
                raise _UnknownNames
        for one in _items(plan.subqueries()):
            yield from self.relations(one, visible, has_alias=False)
        aliased = kind == "SubqueryAlias" or (has_alias and kind in _BEFORE_ALIAS)
        for child in children:
            yield from self.relations(child, visible, has_alias=aliased)

    def _holds_query(self, expression: JavaObject) -> bool:
        """Return whether an expression is a subquery or contains one."""
        return self._is_instance(expression, _QUERY_IN_EXPRESSION) or any(
            self._holds_query(child) for child in _items(expression.children())
        )

    def _is_plan(self, value: object, kind: str) -> bool:
        return hasattr(value, "getClass") and self._is_instance(value, _PLANS + kind)


def _name(
    relation: JavaObject, visible: frozenset[str], *, has_alias: bool
) -> Iterator[RelationName]:
    """Yield the name of a relation with its position in the text; nothing for one of `visible`.

    Raises _UnknownNames for a stream, and for a name without a position.
    """
    parts = tuple(_items(relation.multipartIdentifier()))
    if relation.isStreaming():
        raise _UnknownNames
    if len(parts) == 1 and parts[0].lower() in visible:
        return
    start = relation.origin().startIndex()
    if not start.isDefined():
        raise _UnknownNames
    yield RelationName(parts, start.get(), has_alias)


def _items(sequence: JavaObject) -> Iterator[Any]:
    for place in range(sequence.size()):
        yield sequence.apply(place)


def _product(plan: JavaObject) -> Iterator[Any]:
    for place in range(plan.productArity()):
        yield plan.productElement(place)
