"""Statements are carried out: names resolved, work handed to the data plane, changes committed."""

from __future__ import annotations

from txlake.session.session import Session

__all__ = ["Session"]
