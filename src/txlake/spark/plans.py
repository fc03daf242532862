"""Check a query's analysed plan: what it reads, and whether it does more than compute rows.

Owns the list of operators that served SQL may use. A plan is given as Spark's JSON, which names the
class of every node. Source: TreeNode.toJSON of Spark.
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
"""Operators that compute rows from their children, or are rows themselves."""

_FOREIGN_NAMES = """
ApplyFunctionExpression CallMethodViaReflection FromAvro FromProtobuf PythonUDAF PythonUDF
PythonUDTF ScalaUDF SchemaOfAvro SchemaOfXml SQLFunctionExpression SQLScalarFunction ToAvro
ToProtobuf TryReflect UnresolvedPolymorphicPythonUDTF VariableReference XmlToStructs
aggregate.V2Aggregator aggregate.PythonUDAF objects.NewInstance
"""
FOREIGN: frozenset[str] = frozenset(_EXPRESSIONS_IN + name for name in _FOREIGN_NAMES.split())
"""Expressions of Spark that call foreign code, load files or read variables of the session."""
_FOREIGN_PACKAGES = (f"{_EXPRESSIONS_IN}xml.",)


def refusal_of_plan(plan: str, views: Collection[str]) -> str | None:
    """Return why a query isn't served; None if it may be.

    Args:
        plan: the analysed plan, as JSON.
        views: the names of the temporary views that stand for tables of the lake, in lower case;
            the plan below them isn't checked: it was checked before, or is the lake's own scan.
    """
    try:
        return _refusal(msgspec.json.decode(plan), frozenset(views))
    except RecursionError:
        return "it has queries in queries, too many to look at each"


def _refusal(plan: object, views: frozenset[str]) -> str | None:
    """Return why a plan isn't served; None if it is."""
    for node in _nodes(plan, views):
        kind = node["class"]
        if kind == _VIEW:
            return f"it reads {_name(node)}, which isn't of the lake"
        if kind in OPERATORS:
            continue
        is_builtin = kind.startswith(_EXPRESSIONS_IN) and not kind.startswith(_FOREIGN_PACKAGES)
        if not is_builtin or kind in FOREIGN:
            return f"it needs {kind.rpartition('.')[2]}, which served SQL hasn't"
    return None


def _nodes(trees: object, views: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    """Yield every node of the trees in a JSON value, except views of `views` and all below them."""
    if isinstance(trees, list):
        if trees and isinstance(trees[0], dict) and "num-children" in trees[0]:
            yield from _tree(trees, views)
            return
        for value in trees:
            yield from _nodes(value, views)
    elif isinstance(trees, dict):
        for value in trees.values():
            yield from _nodes(value, views)


def _tree(nodes: Sequence[Mapping[str, Any]], views: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes of one tree, which JSON has as a list, each before its children.

    Also the nodes of the trees inside each node; left out as in `_nodes`.
    """
    index = 0
    while index < len(nodes):
        node = nodes[index]
        if node["class"] == _VIEW and _is_lake_view(node, views):
            index = _subtree_end(nodes, index)
            continue
        yield node
        for key, value in node.items():
            if key not in {"class", "num-children"}:
                yield from _nodes(value, views)
        index += 1


def _subtree_end(nodes: Sequence[Mapping[str, Any]], index: int) -> int:
    """Return the index after a node and all nodes below it."""
    remaining = 1
    while remaining:
        remaining += int(nodes[index]["num-children"]) - 1
        index += 1
    return index


def _is_lake_view(view: Mapping[str, Any], views: frozenset[str]) -> bool:
    return view.get("isTempView") is True and _name(view) in views


def _name(view: Mapping[str, Any]) -> str:
    """Return a view's qualified name in lower case, without parts that it lacks."""
    identifier = (view.get("desc") or {}).get("identifier") or {}
    parts = [identifier.get(key) for key in ("catalog", "database", "table")]
    return ".".join(part for part in parts if part).lower()
