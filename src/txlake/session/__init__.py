"""Statements are carried out: names resolved, work handed to the data plane, changes committed."""

from __future__ import annotations

from txlake.session.places import for_spark, lake_of
from txlake.session.session import Session

__all__ = ["Session", "for_spark", "lake_of"]
