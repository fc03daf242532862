"""A Unity Catalog as a catalog: its tables, by its Delta API.

Owns the requests, and what their responses mean to a transaction. No rows are read or written here.
"""

from __future__ import annotations

from txlake.catalog.unity.catalog import UnityCatalog
from txlake.catalog.unity.client import UnityClient, is_unity

__all__ = ["UnityCatalog", "UnityClient", "is_unity"]
