"""The transaction engine for open Delta Lake tables.

`connect` opens a lake; `Log` works on one table's log alone; `DeltaTable` is delta-spark's API. The
import starts nothing and loads no PySpark: each name is loaded when it is first used, which raises
ModuleNotFoundError where a package that it needs isn't installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from txlake import errors
from txlake.packages import missing_package
from txlake.release import VERSION

if TYPE_CHECKING:
    from txlake.lake.branches import Branch
    from txlake.lake.lake import Lake, LakeSession, Transaction, connect
    from txlake.lake.log import Log, sources_tag
    from txlake.lake.tables import (
        DeltaMergeBuilder,
        DeltaOptimizeBuilder,
        DeltaTable,
        DeltaTableBuilder,
        IdentityGenerator,
        TableBranch,
    )
    from txlake.settings import RetrySettings, Settings
    from txlake.spark_integration.data_source import TxlakeDataSource
    from txlake.spark_integration.delta_package import install_as_delta, uninstall_as_delta
    from txlake.spark_integration.enabling import disable, enable
    from txlake.spark_integration.session_builder import configure

__version__ = VERSION

_HOMES = {
    "connect": "txlake.lake.lake",
    "configure": "txlake.spark_integration.session_builder",
    "enable": "txlake.spark_integration.enabling",
    "disable": "txlake.spark_integration.enabling",
    "TxlakeDataSource": "txlake.spark_integration.data_source",
    "install_as_delta": "txlake.spark_integration.delta_package",
    "uninstall_as_delta": "txlake.spark_integration.delta_package",
    "Branch": "txlake.lake.branches",
    "Lake": "txlake.lake.lake",
    "LakeSession": "txlake.lake.lake",
    "Transaction": "txlake.lake.lake",
    "Log": "txlake.lake.log",
    "sources_tag": "txlake.lake.log",
    "Settings": "txlake.settings",
    "RetrySettings": "txlake.settings",
    "DeltaTable": "txlake.lake.tables",
    "DeltaMergeBuilder": "txlake.lake.tables",
    "DeltaTableBuilder": "txlake.lake.tables",
    "DeltaOptimizeBuilder": "txlake.lake.tables",
    "IdentityGenerator": "txlake.lake.tables",
    "TableBranch": "txlake.lake.tables",
}

__all__ = [
    "Branch",
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
    "Lake",
    "LakeSession",
    "Log",
    "RetrySettings",
    "Settings",
    "TableBranch",
    "Transaction",
    "TxlakeDataSource",
    "configure",
    "connect",
    "disable",
    "enable",
    "errors",
    "install_as_delta",
    "sources_tag",
    "uninstall_as_delta",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'txlake' has no attribute {name!r}")
    try:
        module = import_module(home)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            missing_package(f"txlake.{name}", error), name=error.name
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
