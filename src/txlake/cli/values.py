"""Values as text in a table."""

from __future__ import annotations

import datetime
import re

from txlake.session.views.json_values import json_text, json_value

_NO_MICROSECONDS = re.compile(r"(?<=\.\d{3})000(?=[+-]|$)")


def text_value(value: object) -> str:
    """Return a value as text for a table: nested ones as JSON, bytes as a SQL literal."""
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
