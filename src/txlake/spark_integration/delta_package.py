"""The package `delta` made of txlake, for programs that import Delta Spark's: on request alone."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from txlake import errors, tables
from txlake.errors import InvalidRequest
from txlake.release import VERSION

_NAMES = ("delta", "delta.tables", "delta.exceptions", "delta.version", "delta.pip_utils")
_MARK = "_txlake"


def install_as_delta() -> None:
    """From here on `import delta` is txlake, in this process.

    `from delta.tables import DeltaTable`, `from delta import *`, `delta.exceptions` and
    `configure_spark_with_delta_pip(builder)`, which returns its builder as it is, work without
    delta-spark; the installed one isn't found any more. Call it before the program's own imports;
    called again it changes nothing.

    Raises InvalidRequest when delta-spark was imported already.
    """
    there = sys.modules.get("delta")
    if there is not None and hasattr(there, _MARK):
        return
    if any(name in sys.modules for name in _NAMES):
        raise InvalidRequest(
            "delta-spark is imported already, and its classes are in use: call "
            "txlake.install_as_delta() before the first import of delta"
        )
    package = _module("delta", __path__=[], **{_MARK: True})
    pip_utils = _module("delta.pip_utils", configure_spark_with_delta_pip=_as_it_is)
    version = _module("delta.version", __version__=VERSION)
    sys.modules["delta.tables"], sys.modules["delta.exceptions"] = tables, errors
    package.__dict__.update(
        tables=tables,
        exceptions=errors,
        version=version,
        pip_utils=pip_utils,
        DeltaTable=tables.DeltaTable,
        configure_spark_with_delta_pip=_as_it_is,
        __version__=VERSION,
        __all__=["DeltaTable", "configure_spark_with_delta_pip"],
    )


def uninstall_as_delta() -> None:
    """`import delta` finds what is installed again. Nothing where it isn't txlake."""
    if not hasattr(sys.modules.get("delta"), _MARK):
        return
    for name in _NAMES:
        sys.modules.pop(name, None)


def _as_it_is(
    spark_session_builder: Any,
    extra_packages: list[str] | None = None,
    *args: object,
    **kwargs: object,
) -> Any:
    """The builder: there is no JAR that Spark would have to load."""
    return spark_session_builder


def _module(name: str, **members: object) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module
