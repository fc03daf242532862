"""Values of each type but JSON."""

from __future__ import annotations

from sqlalchemy.testing.suite.test_types import *  # noqa: F403

del JSONLegacyStringCastIndexTest, JSONTest  # noqa: F821
