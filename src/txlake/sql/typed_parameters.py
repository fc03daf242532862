"""Parameters of statements as JSON: a value that JSON lacks is an object of its type and text.

`{"type": "decimal", "value": "1.50"}`; the types are `decimal`, `double`, `binary` (base64),
`date`, `timestamp`, `timestamp_ntz` (ISO 8601) and `interval` (microseconds).
"""

from __future__ import annotations

import base64
import datetime
import math
import numbers
from collections.abc import Callable, Mapping
from decimal import Decimal

from txlake.errors import InvalidRequest
from txlake.sql.markers import WallTime

_MICROSECOND = datetime.timedelta(microseconds=1)
_READERS: Mapping[str, Callable[[str], object]] = {
    "decimal": Decimal,
    "double": float,
    "binary": lambda text: base64.b64decode(text, validate=True),
    "date": datetime.date.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
    "timestamp_ntz": WallTime.fromisoformat,
    "interval": lambda text: int(text) * _MICROSECOND,
}


def to_json(value: object) -> object:
    """Return a parameter as a JSON value. Raises InvalidRequest for a type without one."""
    match value:
        case None | bool() | str():
            return value
        case numbers.Integral():
            number = int(value)
            return number if -(2**63) <= number < 2**63 else _typed("decimal", str(number))
        case float():
            return float(value) if math.isfinite(value) else _typed("double", repr(float(value)))
        case Decimal():
            return _typed("decimal", str(value))
        case bytes() | bytearray():
            return _typed("binary", base64.b64encode(value).decode("ascii"))
        case WallTime():
            return _typed("timestamp_ntz", value.isoformat())
        case datetime.datetime():
            return _typed("timestamp", value.isoformat())
        case datetime.date():
            return _typed("date", value.isoformat())
        case datetime.timedelta():
            return _typed("interval", str(value // _MICROSECOND))
        case list() | tuple():
            return [to_json(item) for item in value]
        case _:
            raise InvalidRequest(
                f"a parameter is a {type(value).__name__}: expected None, bool, int, float, "
                "Decimal, str, bytes, date, datetime, timedelta, or a list of them"
            )


def _typed(kind: str, text: str) -> object:
    return {"type": kind, "value": text}


def from_json(value: object) -> object:
    """Return the parameter of a JSON value. Raises InvalidRequest for an unknown object."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind, text = value.get("type"), value.get("value")
    read = _READERS.get(str(kind))
    if value.keys() != {"type", "value"} or read is None or not isinstance(text, str):
        raise InvalidRequest(
            'a parameter that is an object: expected {"type": ..., "value": "text"} with one of '
            f"the types {', '.join(_READERS)}, found {value!r:.120}"
        )
    try:
        return read(text)
    except (ValueError, ArithmeticError) as error:
        raise InvalidRequest(
            f"a parameter of type {kind}: {text!r:.80} is none: {error}"
        ) from error
