"""A value as text in a drawn table, and as JSON."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import re
from collections.abc import Mapping

_NO_MICROSECONDS = re.compile(r"(?<=\.\d{3})000(?=[+-]|$)")


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


def text_value(value: object) -> str:
    """A value as a table shows it; nested ones as JSON, bytes as SQL writes them."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case datetime.datetime():
            return _NO_MICROSECONDS.sub("", value.isoformat(" "))
        case bytes():
            return f"X'{value.hex().upper()}'"
        case float():
            return str(json_value(value))
        case list() | dict():
            return json_text(value)
        case _:
            return str(json_value(value))
