"""A package `delta` made of txlake, installed on request, for programs that import Delta Spark."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from txlake import errors
from txlake.errors import InvalidRequest
from txlake.lake import tables
from txlake.release import VERSION

_NAMES = ("delta", "delta.tables", "delta.exceptions", "delta.version", "delta.pip_utils")
_MARK = "_txlake"


def install_as_delta() -> None:
    """Make `import delta` import txlake from now on in this process.

    `from delta.tables import DeltaTable`, `from delta import *`, `delta.exceptions` and
    `configure_spark_with_delta_pip(builder)`, which returns its builder unchanged, work without
    delta-spark; an installed delta-spark isn't found any more. Call this before the program's own
    imports; a second call changes nothing.

    Raises InvalidRequest when delta-spark was imported already.
    """
    imported = sys.modules.get("delta")
    if imported is not None and hasattr(imported, _MARK):
        return
    if any(name in sys.modules for name in _NAMES):
        raise InvalidRequest(
            "delta-spark is imported already, and its classes are in use: call "
            "txlake.install_as_delta() before the first import of delta"
        )
    package = _module("delta", __path__=[], **{_MARK: True})
    pip_utils = _module(
        "delta.pip_utils", configure_spark_with_delta_pip=_configure_spark_with_delta_pip
    )
    version = _module("delta.version", __version__=VERSION)
    sys.modules["delta.tables"], sys.modules["delta.exceptions"] = tables, errors
    package.__dict__.update(
        tables=tables,
        exceptions=errors,
        version=version,
        pip_utils=pip_utils,
        DeltaTable=tables.DeltaTable,
        configure_spark_with_delta_pip=_configure_spark_with_delta_pip,
        __version__=VERSION,
        __all__=["DeltaTable", "configure_spark_with_delta_pip"],
    )


def uninstall_as_delta() -> None:
    """Make `import delta` find the installed package again; nothing if `delta` isn't txlake."""
    if not hasattr(sys.modules.get("delta"), _MARK):
        return
    for name in _NAMES:
        sys.modules.pop(name, None)


def _configure_spark_with_delta_pip(
    spark_session_builder: Any,
    extra_packages: list[str] | None = None,
    *args: object,
    **kwargs: object,
) -> Any:
    """Return the builder unchanged: Spark needs no JAR."""
    return spark_session_builder


def _module(name: str, **members: object) -> ModuleType:
    """Return a new module with these members, which imports of this name find from now on."""
    module = ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module
