"""Per-file statistics: the JSON text in `add.stats` and its values.

Owns how a bound of each type is written, so that every reader may skip by it. Source: PROTOCOL.md,
"Per-file Statistics". Columns are keyed by physical names, structs nested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TypeAlias, cast

import msgspec

from txlake.errors import CorruptTable

STRING_PREFIX_LENGTH = 32
_ASCII_END = "\x7f"
_UNICODE_END = "\U0010ffff"

# A leaf: a Python value when made here, a JSON value (numbers with a fraction are Decimal) when
# read from text. A mapping is a struct.
Bounds: TypeAlias = Mapping[str, object]

_DECODER = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """The statistics of one data file; None where they aren't known.

    `num_records` counts the physical rows, deleted ones too. Unless `tight_bounds`, only the null
    counts 0 and `num_records` are reliable.
    """

    num_records: int | None = None
    min_values: Bounds = field(default_factory=dict)
    max_values: Bounds = field(default_factory=dict)
    null_count: Bounds = field(default_factory=dict)
    tight_bounds: bool = True

    @classmethod
    def from_json(cls, text: str | None) -> FileStatistics:
        """Return the statistics of `add.stats`; empty ones for no text. Raises CorruptTable for
        invalid JSON.

        Bounds keep their JSON form: only the schema determines whether a text is a date.
        """
        if not text:
            return cls()
        values = _decode(text)
        records = values.get("numRecords")
        return cls(
            num_records=records if isinstance(records, int) else None,
            min_values=_mapping(values.get("minValues")),
            max_values=_mapping(values.get("maxValues")),
            null_count=_mapping(values.get("nullCount")),
            tight_bounds=values.get("tightBounds") is not False,
        )

    def to_json(self, *, prefix_length: int = STRING_PREFIX_LENGTH) -> str:
        """Return the text for `add.stats`; strings longer than `prefix_length` are cut to
        bounds.
        """
        values: dict[str, object] = {}
        if self.num_records is not None:
            values["numRecords"] = self.num_records
        values["minValues"] = _formatted(self.min_values, prefix_length, upper=False)
        values["maxValues"] = _formatted(self.max_values, prefix_length, upper=True)
        values["nullCount"] = dict(self.null_count)
        values["tightBounds"] = self.tight_bounds
        return _ENCODER.encode(values).decode()


def loosen(stats_json: str) -> str:
    """Return the statistics with `tightBounds` false: for a file whose deletion vector grew.

    All else is unchanged. Raises CorruptTable when the text is no JSON object.
    """
    values = _decode(stats_json)
    values["tightBounds"] = False
    return _ENCODER.encode(values).decode()


def with_num_records(stats_json: str | None, num_records: int) -> str:
    """Return the statistics with `numRecords` set; without a text, only `numRecords`.

    Raises CorruptTable when the text is no JSON object.
    """
    values = _decode(stats_json) if stats_json else {}
    return _ENCODER.encode({**values, "numRecords": num_records}).decode()


def _decode(text: str) -> dict[str, object]:
    """Return the statistics' JSON object. Raises CorruptTable for another text."""
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, ArithmeticError, RecursionError) as error:
        raise CorruptTable(
            f"file statistics: expected a JSON object, found {text!r:.80}: {error}"
        ) from error


def _mapping(value: object) -> Bounds:
    return cast(Bounds, value) if isinstance(value, dict) else {}


def _formatted(bounds: Bounds, prefix_length: int, *, upper: bool) -> dict[str, object]:
    """Return `upper` or lower bounds as JSON values, structs nested, without those that can't be
    written.
    """
    result: dict[str, object] = {}
    for name, value in bounds.items():
        if isinstance(value, Mapping):
            written: object = _formatted(value, prefix_length, upper=upper)
        else:
            written = format_bound(value, upper=upper, prefix_length=prefix_length)
        if written is not None:
            result[name] = written
    return result


def format_bound(
    value: object, *, upper: bool, prefix_length: int = STRING_PREFIX_LENGTH
) -> object:
    """Return the JSON value of a bound; None where none can be written.

    A cut text stays a bound: a lower one is a prefix, an upper one gets a character that sorts
    last. Times are written to the millisecond, or to the microsecond where they have any, so that
    no reader loses a row by rounding. NaN and infinities aren't JSON, and bytes have no bounds.
    """
    match value:
        case str():
            return _upper_text(value, prefix_length) if upper else value[:prefix_length]
        case float():
            return value if math.isfinite(value) else None
        case bool() | int() | Decimal():
            return value
        case datetime():
            return _time_text(value)
        case date():
            return value.isoformat()
        case _:
            return None


def _time_text(value: datetime) -> str:
    """Return the time in ISO 8601, an instant in UTC with a final Z, to the millisecond or
    microsecond.
    """
    precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=precision)
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec=precision)}Z"


def _upper_text(value: str, length: int) -> str:
    """Return an upper bound of the text, cut to about `length` characters; the text itself if it
    has no more, or if no shorter bound exists.
    """
    if len(value) <= length:
        return value
    if value[length] < _ASCII_END:
        return value[:length] + _ASCII_END
    # A text that continues with the last character of Unicode needs that character too.
    end = length
    while end < len(value) and value[end] == _UNICODE_END:
        end += 1
    return value if end == len(value) else value[:end] + _UNICODE_END
