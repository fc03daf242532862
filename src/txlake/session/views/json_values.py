"""Convert values of results to JSON."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Mapping


def json_value(value: object) -> object:
    """Return a value for `json.dumps`; the keys of mappings become texts.

    Decimals and times become texts, bytes base64, tuples lists, and values of other types their
    `str`. A float without a JSON number becomes the text "NaN", "Infinity" or "-Infinity".
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
            return {str(name): json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case _:
            return str(value)


def json_text(value: object) -> str:
    """Return a value as one line of JSON, with unescaped non-ASCII letters."""
    return json.dumps(json_value(value), ensure_ascii=False)
