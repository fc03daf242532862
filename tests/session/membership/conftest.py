"""Lakes of several processes, as the tests of sessions have them."""

from __future__ import annotations

from tests.session.conftest import alone as alone
from tests.session.conftest import lakes as lakes
