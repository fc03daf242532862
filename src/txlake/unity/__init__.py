"""Another system's catalog: the tables of a Unity Catalog, by its Delta API.

Owns the requests, and what their answers mean to a transaction. Nothing here touches rows.
"""

from __future__ import annotations

from txlake.unity.catalog import UnityCatalog
from txlake.unity.client import UnityClient, is_unity

__all__ = ["UnityCatalog", "UnityClient", "is_unity"]
