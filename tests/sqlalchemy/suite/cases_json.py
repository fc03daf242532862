"""Values of JSON, and their elements."""

from __future__ import annotations

from sqlalchemy.testing.suite.test_types import JSONLegacyStringCastIndexTest, JSONTest

__all__ = ["JSONLegacyStringCastIndexTest", "JSONTest"]
