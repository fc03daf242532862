"""Running a mutant: the code of a function, or a module's table, is replaced for a while.

No file changes, and nothing in txlake knows of it. Functions keep their identity, so that every
module that imported one runs the mutant's code.
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
    """Run the mutant within this block. Its function must not be running at the time."""
    module = importlib.import_module(f"txlake.{mutant.module}")
    path = path_of(mutant.module)
    tree = ast.parse(_source(mutant.module))
    mutant.apply(tree)
    if mutant.function:
        enclosing = [one for one in tree.body if one.lineno <= mutant.line <= (one.end_lineno or 0)]
        compiled = compile(ast.Module(enclosing, []), str(path), "exec")
        function = _function(module, mutant.function)
        original = function.__code__
        function.__code__ = _code(compiled, mutant.function)
        try:
            yield
        finally:
            function.__code__ = original
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
    value: object = vars(owner)[name]
    while not isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
        for attribute in ("__wrapped__", "__func__", "fget", "func"):
            inner = getattr(value, attribute, None)
            if inner is not None:
                value = inner
                break
        else:
            raise LookupError(f"{module.__name__}: {qualified}: {value!r}")
    return value


@contextmanager
def _constants(module: ModuleType, tree: ast.Module, line: int) -> Iterator[None]:
    """Replace the module's value assigned at the line, and the values computed from it."""
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
        _replace_everywhere(old, new)
        undo.append((old, new))
    try:
        yield
    finally:
        for old, new in undo:
            _replace_everywhere(new, old)


def _replace_everywhere(old: object, new: object) -> None:
    """Replace a value in every module of txlake and of its tests, and in their functions'
    defaults.
    """
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("txlake", "tests"):
            continue
        for key, value in list(vars(module).items()):
            if value is old:
                setattr(module, key, new)
            elif isinstance(value, FunctionType) and value.__defaults__:
                value.__defaults__ = tuple(new if one is old else one for one in value.__defaults__)
