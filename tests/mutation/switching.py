"""Makes a mutant real in memory: a function's code, or a module's table, is exchanged for a while.

Owns the exchange alone. No file changes, and nothing in txlake knows of it: functions keep their
identity, so that whoever imported them runs the mutant's code.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType, ModuleType

from tests.mutation.guards import Mutant, path_of


@contextmanager
def switched_off(mutant: Mutant) -> Iterator[None]:
    """The mutant is what runs, inside the block. Not for functions that run at that moment."""
    module = importlib.import_module(f"txlake.{mutant.module}")
    path = path_of(mutant.module)
    tree = ast.parse(_source(mutant.module))
    mutant.apply(tree)
    if mutant.function:
        around = [one for one in tree.body if one.lineno <= mutant.line <= (one.end_lineno or 0)]
        compiled = compile(ast.Module(around, []), str(path), "exec")
        function = _function(module, mutant.function)
        kept = function.__code__
        function.__code__ = _code(compiled, mutant.function)
        try:
            yield
        finally:
            function.__code__ = kept
    else:
        with _constants(module, tree, mutant.line):
            yield


@cache
def _source(module: str) -> str:
    return path_of(module).read_text()


def _code(compiled: CodeType, qualified: str) -> CodeType:
    for constant in compiled.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualified:
                return constant
            if qualified.startswith(f"{constant.co_qualname}."):
                return _code(constant, qualified)
    raise LookupError(qualified)


def _function(module: ModuleType, qualified: str) -> FunctionType:
    *above, name = qualified.split(".")
    owner: object = module
    for part in above:
        owner = getattr(owner, part)
    found: object = vars(owner)[name]
    while not isinstance(found, FunctionType) or hasattr(found, "__wrapped__"):
        for attribute in ("__wrapped__", "__func__", "fget", "func"):
            inner = getattr(found, attribute, None)
            if inner is not None:
                found = inner
                break
        else:
            raise LookupError(f"{module.__name__}: {qualified}: {found!r}")
    return found


@contextmanager
def _constants(module: ModuleType, tree: ast.Module, line: int) -> Iterator[None]:
    """The module's value that is assigned around the line, and those made of it, exchanged."""
    scratch = dict(vars(module))
    changed: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        read = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        if not (node.lineno <= line <= (node.end_lineno or 0) or read & changed):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {
            one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
        }
        exec(compile(ast.Module([node], []), module.__file__ or "", "exec"), scratch)
        changed |= names
    undo: list[tuple[object, object]] = []
    for name in changed:
        old, new = vars(module)[name], scratch[name]
        _exchange(old, new)
        undo.append((old, new))
    try:
        yield
    finally:
        for old, new in undo:
            _exchange(new, old)


def _exchange(old: object, new: object) -> None:
    """In every module of txlake and of its tests, and in the defaults of their functions."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("txlake", "tests"):
            continue
        for key, value in list(vars(module).items()):
            if value is old:
                setattr(module, key, new)
            elif isinstance(value, FunctionType) and value.__defaults__:
                value.__defaults__ = tuple(new if one is old else one for one in value.__defaults__)
