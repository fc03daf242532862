"""The version of the adapter, as dbt looks for it."""

from __future__ import annotations

version = "0.2.0"
