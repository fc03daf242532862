"""A value as JSON has it, for who reads results without Python."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Mapping


def json_value(value: object) -> object:
    """What `json.dumps` takes: exact decimals and moments are texts, bytes are base64.

    A float that JSON has no number for is the text "NaN", "Infinity" or "-Infinity".
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            return {str(name): json_value(one) for name, one in value.items()}
        case list() | tuple():
            return [json_value(one) for one in value]
        case _:
            return str(value)


def json_text(value: object) -> str:
    """One line of JSON, letters as they are."""
    return json.dumps(json_value(value), ensure_ascii=False)
