"""Another Unity Catalog as the catalog and ledger of tables, through its Delta API.

Owns the requests, and what their responses mean to a transaction. Reads and writes no rows.
"""

from __future__ import annotations

from txlake.catalog.unity.catalog import UnityCatalog
from txlake.catalog.unity.client import UnityClient, is_unity

__all__ = ["UnityCatalog", "UnityClient", "is_unity"]
