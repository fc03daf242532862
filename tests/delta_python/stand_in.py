"""The package `delta`, as Delta Spark's tests import it, made of txlake; the tests are theirs."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import txlake
from txlake import errors
from txlake.lake import tables

# The tests, and the classes that start Spark for them. Nothing else of the checkout is imported.
_OF_THE_CHECKOUT = ("delta.testing", "delta.tests", "delta.connect.testing", "delta.connect.tests")


def install(checkout: Path) -> None:
    """From here on `import delta` is txlake, in this process."""
    _module("delta", DeltaTable=tables.DeltaTable, __version__=txlake.__version__, __path__=[])
    _module("delta.version", __version__=txlake.__version__)
    _module("delta.connect", __path__=[])
    sys.modules["delta.tables"] = tables
    for name in ("delta.exceptions", "delta.connect.exceptions"):
        sys.modules[name] = errors
        parent, _, own = name.rpartition(".")
        setattr(sys.modules[parent], own, errors)
    for name in _OF_THE_CHECKOUT:
        _module(name, __path__=[str(checkout.joinpath("python", *name.split(".")))])


def install_for_connect() -> None:
    """What the tests of Connect take from the classic ones is where a script of theirs finds it."""
    sys.modules["tests.test_deltatable"] = import_module("delta.tests.test_deltatable")


def _module(name: str, **members: object) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)
    return module
