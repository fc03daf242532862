"""The guards of the folders that decide and commit, found in their syntax trees.

Owns what counts as a guard, the ways to switch one off, and the names of these in guards.toml.
Nothing is run here; `switching` runs a mutant.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

SOURCES = Path(__file__).parents[2] / "src" / "txlake"

MODULES = {
    "conflict": (
        "adoption",
        "check",
        "compaction_tags",
        "concurrent_commit",
        "context",
        "evidence",
        "footprint",
        "granularity",
        "foreign_rules",
        "group_rules",
        "levels",
        "locking",
        "metadata_updates",
        "positions",
        "row_reconciliation",
        "rules",
        "row_rules",
        "metadata_rules",
        "file_compatibility",
        "match_cache",
        "read_set",
        "read_set_codec",
    ),
    "log": ("net_actions",),
    "commit": (
        "branch_fence",
        "branch_store",
        "catalog_managed",
        "commit_info",
        "file_validation",
        "commit_loop",
        "expired_files",
        "foreign_commit",
        "in_commit_time",
        "lake_commit",
        "log_cleanup",
        "membership",
        "notice_commit",
        "path_commit",
        "publication",
        "read_records",
        "rebase",
        "metadata_validation",
        "reconciliation",
        "table_branches",
        "table_paths",
        "table_transaction",
        "tombstone_tags",
        "transaction_group",
        "vacuum",
        "validation",
    ),
    "catalog": (
        "admission",
        "branch_rows",
        "branches",
        "commits",
        "counter_rows",
        "drop_rows",
        "group_commit",
        "lock_errors",
        "lock_rows",
        "locks",
        "names",
        "owners",
        "place_facts",
        "pruning",
        "publishing",
        "ratifying",
        "lookup",
        "sessions",
        "transactions",
    ),
    "session": (
        *("admission", "branch_changes", "branches", "catalog_access", "conflict_turns"),
        *("isolation", "statement_slots"),
    ),
    "session.membership": ("attachment", "dropping", "opening", "recovery"),
    "maintenance": ("maintainer", "needs", "order", "policy", "work"),
    "commands": ("table_branches",),
    "protocol": ("branching",),
    "storage": ("proof",),
}
"""By folder of txlake the modules whose guards are listed."""

_LOGGERS = {"_log", "_logger"}

Block = list[ast.stmt]
Change = Callable[[ast.Module, ast.AST], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One guard, switched off in one way.

    Attributes:
        module: as `commit.commit_loop`.
        function: the qualified name of the guard's function; "" for the module's own level.
        guard: the guard's kind, its number among the guards of this kind in the function, and how
            it is
            switched off: `if 2 never`, `return 1 side 2`. A renamed variable doesn't change it.
        text: the guard's source.
        line, last_line: where the guard is; evaluating it runs one of these lines.
        node: the number of the guard among the tree's nodes, in the order of `ast.walk`.
        mutate: changes the module's tree; called once, on a tree of its own.
    """

    module: str
    function: str
    guard: str
    text: str
    line: int
    last_line: int
    node: int
    mutate: Change

    @property
    def place(self) -> str:
        return f"{self.module}:{self.function or '<module>'}"

    @property
    def key(self) -> str:
        return f"{self.place}: {self.guard}"

    def apply(self, tree: ast.Module) -> None:
        """Switch the guard off in a tree of the module's source."""
        self.mutate(tree, list(ast.walk(tree))[self.node])
        ast.fix_missing_locations(tree)


def path_of(module: str) -> Path:
    """Return the source file of a module such as `commit.commit_loop`."""
    return SOURCES.joinpath(*module.split(".")).with_suffix(".py")


def modules(folder: str) -> list[str]:
    """Return the listed modules of a folder."""
    return [f"{folder}.{name}" for name in MODULES[folder]]


def mutants_of(module: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its source."""
    return walk(module, path_of(module).read_text())


def walk(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module with this source."""
    tree = ast.parse(source)
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    found: list[Mutant] = []
    guards: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for site in _sites(tree):
        order = guards[site.function, site.kind]
        if site.identity not in order:
            order.append(site.identity)
        number = order.index(site.identity) + 1
        line, last_line = _lines(site.node)
        found.append(
            Mutant(
                module=module,
                function=site.function,
                guard=f"{site.kind} {number} {site.how}",
                text=" ".join(site.text.split()),
                line=line,
                last_line=last_line,
                node=numbers[id(site.node)],
                mutate=site.mutate,
            )
        )
    return sorted(found, key=lambda mutant: mutant.line)


def _lines(node: ast.AST) -> tuple[int, int]:
    match node:
        case (
            ast.If(test=first) | ast.While(test=first) | ast.ExceptHandler(type=ast.expr() as first)
        ):
            last = first.end_lineno
        case ast.With(items=items):
            last = items[-1].context_expr.end_lineno
        case _:
            last = getattr(node, "end_lineno", None)
    line: int = getattr(node, "lineno", 0)
    return line, last or line


@dataclass(frozen=True, slots=True)
class _Site:
    """A guard found in the walk, and one way to switch it off.

    Attributes:
        part: the part of the node that is the guard, where a node holds several guards.
    """

    function: str
    node: ast.AST
    kind: str
    how: str
    text: str
    mutate: Change
    part: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        return id(self.node), self.part


def _sites(tree: ast.Module) -> Iterator[_Site]:
    yield from _tables(tree)
    yield from _sql_conditions(tree, "")
    for function, body in _functions(tree, ""):
        # Such a raise is switched off with its condition.
        in_ifs = {
            id(child) for node in ast.walk(body) if isinstance(node, ast.If) for child in node.body
        }
        for node in _own_nodes(body):
            yield from _mutations(function, node, in_if=id(node) in in_ifs)
        yield from _sql_conditions(body, function)


def _functions(
    node: ast.AST, above: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the module's functions and methods; functions within functions belong to these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{above}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{above}{child.name}.")


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function in the order of the source."""
    for child in ast.iter_child_nodes(function):
        yield child
        yield from _own_nodes(child)


def _mutations(function: str, node: ast.AST, *, in_if: bool) -> Iterator[_Site]:
    """Yield the ways to switch off the guard that a node may be."""
    match node:
        case ast.If(test=test):
            text = f"if {ast.unparse(test)}"
            yield _Site(function, node, "if", "never", text, _test(False))
            yield _Site(function, node, "if", "always", text, _test(True))
            yield from _operands(function, node, test, "if")
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            text = f"while {ast.unparse(test)}"
            yield _Site(function, node, "while", "never", text, _test(False))
            yield from _operands(function, node, test, "while")
        case ast.Return(value=ast.BoolOp() as value):
            yield from _operands(function, node, value, "return")
        case ast.Expr(value=ast.Call() as call) if not _is_irrelevant(call):
            yield _Site(function, node, "call", "without", ast.unparse(call), _drop)
        case ast.Raise(exc=error) if not in_if:
            text = f"raise {'' if error is None else _error_name(error)}"
            yield _Site(function, node, "raise", "without", text, _drop)
        case ast.ExceptHandler(type=caught) if caught is not None:
            text = f"except {ast.unparse(caught)}"
            yield _Site(function, node, "except", "uncaught", text, _uncaught)
        case ast.With(items=items):
            for index, item in enumerate(items):
                if item.optional_vars is None:
                    text = f"with {ast.unparse(item.context_expr)}"
                    change = _without_context(index)
                    yield _Site(function, node, "with", "without", text, change, index)


def _operands(function: str, node: ast.AST, test: ast.expr, kind: str) -> Iterator[_Site]:
    """Yield for each side of an `and` or `or`, at any depth, the mutant without its effect."""
    for path, operator, operand in _sides(test, ()):
        side = ".".join("not" if step == -1 else str(step + 1) for step in path)
        text = f"{operator} {ast.unparse(operand)}"
        yield _Site(function, node, kind, f"side {side}", text, _side(path, operator))


def _sides(
    test: ast.expr, above: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], str, ast.expr]]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _sides(test.operand, (*above, -1))
    if isinstance(test, ast.BoolOp):
        operator = "and" if isinstance(test.op, ast.And) else "or"
        for index, operand in enumerate(test.values):
            yield (*above, index), operator, operand
            yield from _sides(operand, (*above, index))


def _sql_conditions(node: ast.AST, function: str) -> Iterator[_Site]:
    """Yield the conditions of SQL statements in a function, or at the module's own level."""
    for child in ast.walk(node) if function else _module_level_nodes(node):
        match child:
            case ast.Call(func=ast.Attribute(attr="where"), args=conditions):
                for index, condition in enumerate(conditions):
                    text, change = ast.unparse(condition), _argument(index)
                    yield _Site(function, child, "where", "without", text, change, index)
            case ast.Call(func=ast.Attribute(attr="with_for_update", value=query)):
                yield _Site(function, child, "lock", "without", ast.unparse(query), _unlocked)
            case ast.BinOp(op=ast.BitAnd(), left=left, right=right) if not _is_set(child):
                if not isinstance(left, ast.BinOp):
                    text, change = ast.unparse(left), _sql_side("left")
                    yield _Site(function, child, "where", "without", text, change, 0)
                text, change = ast.unparse(right), _sql_side("right")
                yield _Site(function, child, "where", "without", text, change, 1)


def _module_level_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Assign | ast.AnnAssign):
            yield from ast.walk(child)


def _tables(tree: ast.Module) -> Iterator[_Site]:
    """Yield the entries of the module's tables, such as rules, modes and names."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if name.startswith("__"):
            continue
        entries: Sequence[ast.expr | None]
        table = value.args[0] if isinstance(value, ast.Call) and value.args else value
        match table:
            case ast.Dict(keys=keys) if len(keys) > 1:
                entries = keys
            case ast.Tuple(elts=elements) | ast.Set(elts=elements) if len(elements) > 1:
                entries = elements
            case _:
                continue
        for index, entry in enumerate(entries):
            if entry is not None and not _is_column(entry):
                text, change = f"{name}[{ast.unparse(entry)}]", _entry(index)
                yield _Site("", table, f"entry of {name}", "without", text, change, index)


def _is_column(entry: ast.expr) -> bool:
    """Return whether an entry is a column of a relation, whose tuple isn't a table of rules."""
    owner = entry.value if isinstance(entry, ast.Attribute) else None
    return isinstance(owner, ast.Attribute) and owner.attr == "c"


# The changes


def _test(value: bool) -> Callable[[ast.Module, ast.AST], None]:
    def change(_: ast.Module, node: ast.AST) -> None:
        assert isinstance(node, ast.If | ast.While)
        # The test is still evaluated: what it does besides deciding stays.
        last = ast.Constant(value)
        node.test = ast.Subscript(
            ast.Tuple([node.test, last], ast.Load()), ast.Constant(1), ast.Load()
        )

    return change


def _drop(tree: ast.Module, node: ast.AST) -> None:
    for block in _blocks(tree):
        for index, statement in enumerate(block):
            if statement is node:
                block[index] = ast.copy_location(ast.Pass(), statement)


def _blocks(tree: ast.AST) -> Iterator[Block]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _uncaught(_: ast.Module, node: ast.AST) -> None:
    assert isinstance(node, ast.ExceptHandler)
    node.type = ast.Tuple([], ast.Load())


def _without_context(index: int) -> Callable[[ast.Module, ast.AST], None]:
    def change(_: ast.Module, node: ast.AST) -> None:
        assert isinstance(node, ast.With)
        node.items[index].context_expr = ast.parse(
            "__import__('contextlib').nullcontext()", mode="eval"
        ).body

    return change


def _side(path: tuple[int, ...], operator: str) -> Callable[[ast.Module, ast.AST], None]:
    def change(_: ast.Module, node: ast.AST) -> None:
        parent: ast.AST = getattr(node, "test", None) or getattr(node, "value")  # noqa: B009
        for step in path[:-1]:
            parent = parent.operand if step == -1 else parent.values[step]  # type: ignore[attr-defined]
        assert isinstance(parent, ast.BoolOp)
        parent.values[path[-1]] = ast.Constant(operator == "and")

    return change


def _argument(index: int) -> Callable[[ast.Module, ast.AST], None]:
    def change(_: ast.Module, node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        node.args[index] = ast.parse("__import__('sqlalchemy').true()", mode="eval").body

    return change


def _sql_side(name: str) -> Callable[[ast.Module, ast.AST], None]:
    def change(_: ast.Module, node: ast.AST) -> None:
        setattr(node, name, ast.parse("__import__('sqlalchemy').true()", mode="eval").body)

    return change


def _unlocked(tree: ast.Module, node: ast.AST) -> None:
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    query = node.func.value
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, query)
            elif isinstance(value, list):
                value[:] = [query if one is node else one for one in value]


def _is_set(node: ast.BinOp) -> bool:
    """Return whether `&` is an operation on sets rather than on SQL conditions."""
    return not any(isinstance(side, ast.Compare) for side in (node.left, node.right))


def _entry(index: int) -> Callable[[ast.Module, ast.AST], None]:
    def change(_: ast.Module, node: ast.AST) -> None:
        if isinstance(node, ast.Dict):
            del node.keys[index], node.values[index]
        else:
            assert isinstance(node, ast.Tuple | ast.Set)
            del node.elts[index]

    return change


# Names


def _is_irrelevant(call: ast.Call) -> bool:
    """Return whether a call only writes to the log or marks unreachable code."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=owner)):
            return owner in _LOGGERS
        case ast.Name(id=name):
            return name == assert_never.__name__
    return False


def _error_name(error: ast.expr) -> str:
    return ast.unparse(error.func if isinstance(error, ast.Call) else error)
