"""dbt's adapter for lakes of txlake, over txlake's own driver.

| module | owns |
| --- | --- |
| `credentials` | what a profile says |
| `units` | what becomes visible together: a model, a whole build, or a branch |
| `outcome` | whether everything of a command has passed |
| `connections` | connections and statements |
| `relations` | names of tables and views, and their columns |
| `impl` | what dbt's macros ask the lake |
"""

from __future__ import annotations

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.txlake.connections import TxlakeConnectionManager as TxlakeConnectionManager
from dbt.adapters.txlake.credentials import TxlakeCredentials
from dbt.adapters.txlake.impl import TxlakeAdapter
from dbt.include import txlake

Plugin = AdapterPlugin(
    adapter=TxlakeAdapter,
    credentials=TxlakeCredentials,
    include_path=txlake.PACKAGE_PATH,
    dependencies=["spark"],
)
