"""Judge a query by its analysed plan: what it reads, and whether it may do more than compute rows.

Owns the list of operators that served SQL may use. A plan is given as Spark's JSON of it, which
names the class of every node. Source: TreeNode.toJSON of Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

_SPARK = "org.apache.spark.sql."
_OPERATORS_IN = f"{_SPARK}catalyst.plans.logical."
_EXPRESSIONS_IN = f"{_SPARK}catalyst.expressions."
_VIEW = f"{_OPERATORS_IN}View"

_OPERATOR_NAMES = """
Aggregate CTERelationDef CTERelationRef Deduplicate Distinct EmptyRelation Except Expand Filter
Generate GlobalLimit Intersect Join LateralJoin LocalLimit LocalRelation NearestByJoin Offset
OneRowRelation Project Range RebalancePartitions Repartition RepartitionByExpression
ResolvedHint ResolvedInlineTable Sample Sort SubqueryAlias Tail Union UnionLoop UnionLoopRef
Window WithCTE
"""
OPERATORS: frozenset[str] = frozenset(_OPERATORS_IN + name for name in _OPERATOR_NAMES.split())
"""Operators that compute rows of their children, or have rows of their own."""

_FOREIGN_NAMES = """
ApplyFunctionExpression CallMethodViaReflection FromAvro FromProtobuf PythonUDAF PythonUDF
PythonUDTF ScalaUDF SchemaOfAvro SchemaOfXml SQLFunctionExpression SQLScalarFunction ToAvro
ToProtobuf TryReflect UnresolvedPolymorphicPythonUDTF VariableReference XmlToStructs
aggregate.V2Aggregator aggregate.PythonUDAF objects.NewInstance
"""
FOREIGN: frozenset[str] = frozenset(_EXPRESSIONS_IN + name for name in _FOREIGN_NAMES.split())
"""Expressions of Spark's that call code of others, load files or show variables of the session."""
_FOREIGN_PACKAGES = (f"{_EXPRESSIONS_IN}xml.",)


def refusal_of_plan(plan: str, views: Collection[str]) -> str | None:
    """Return why a query isn't served; None where it may be.

    Args:
        plan: the analysed plan, as JSON.
        views: the names of the temporary views that stand for tables of the lake, in lower case;
            what is below them has been judged, or is the lake's own scan.
    """
    try:
        return _refusal(msgspec.json.decode(plan), frozenset(views))
    except RecursionError:
        return "it has queries in queries, too many to look at each"


def _refusal(plan: object, views: frozenset[str]) -> str | None:
    for node in _nodes(plan, views):
        kind = node["class"]
        if kind == _VIEW:
            return f"it reads {_name(node)}, which isn't of the lake"
        if kind in OPERATORS:
            continue
        is_own = kind.startswith(_EXPRESSIONS_IN) and not kind.startswith(_FOREIGN_PACKAGES)
        if not is_own or kind in FOREIGN:
            return f"it needs {kind.rpartition('.')[2]}, which served SQL hasn't"
    return None


def _nodes(trees: object, views: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    """Every node of the trees in a value, but not what is below a view of `views`."""
    if isinstance(trees, list):
        if trees and isinstance(trees[0], dict) and "num-children" in trees[0]:
            yield from _tree(trees, views)
            return
        for one in trees:
            yield from _nodes(one, views)
    elif isinstance(trees, dict):
        for one in trees.values():
            yield from _nodes(one, views)


def _tree(nodes: Sequence[Mapping[str, Any]], views: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    """The nodes of one tree, which JSON has as a list, each before its children."""
    place = 0
    while place < len(nodes):
        node = nodes[place]
        if node["class"] == _VIEW and _is_one_of(node, views):
            place = _after(nodes, place)
            continue
        yield node
        for key, value in node.items():
            if key not in {"class", "num-children"}:
                yield from _nodes(value, views)
        place += 1


def _after(nodes: Sequence[Mapping[str, Any]], place: int) -> int:
    """The place after a node and all that is below it."""
    wanted = 1
    while wanted:
        wanted += int(nodes[place]["num-children"]) - 1
        place += 1
    return place


def _is_one_of(view: Mapping[str, Any], views: frozenset[str]) -> bool:
    return view.get("isTempView") is True and _name(view) in views


def _name(view: Mapping[str, Any]) -> str:
    identifier = (view.get("desc") or {}).get("identifier") or {}
    parts = [identifier.get(key) for key in ("catalog", "database", "table")]
    return ".".join(part for part in parts if part).lower()
