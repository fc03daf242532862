"""Keys and paths of JSON values, as the paths that Spark's functions take: `$["key"][0]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.sql import sqltypes

from txlake.protocol.type_text import quoted_text


def _step(part: object) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    escaped = str(part).replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


class _Formatted:
    """Formats a key or path where it is bound."""

    def _format(self, value: Any) -> str:
        raise NotImplementedError

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        return self._format

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        return lambda value: quoted_text(self._format(value))


class JsonIndex(_Formatted, sqltypes.JSON.JSONIndexType):
    """One key or index."""

    def _format(self, value: Any) -> str:
        return f"${_step(value)}"


class JsonPath(_Formatted, sqltypes.JSON.JSONPathType):
    """Keys and indexes, one inside the other."""

    def _format(self, value: Any) -> str:
        return f"${''.join(map(_step, value))}"
