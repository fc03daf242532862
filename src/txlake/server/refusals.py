"""What isn't carried out for those who may ask for SQL and don't own the machine.

Owns which statements reach beyond the lake's tables by their names: paths, the machine's files,
code that would run here, settings that all callers share.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from txlake.session.command import words_of
from txlake.statements import (
    ConvertTable,
    ConvertToDelta,
    CopyInto,
    CreateTemporaryView,
    ExecuteImmediate,
    Generate,
    ReadTable,
    SparkCommand,
    Statement,
    StreamBatch,
    TableName,
    TablePath,
    Write,
)

NOT_SERVED: frozenset[type] = frozenset(
    {
        *(SparkCommand, CopyInto, ConvertToDelta, ConvertTable, Generate, ExecuteImmediate),
        *(CreateTemporaryView, ReadTable, StreamBatch, Write),
    }
)
"""What reaches beyond the lake's tables, or all callers."""

# Functions of Spark's that call any method of the JVM, and its clause that runs a program.
_BEYOND = re.compile(r"(?i)\b((try_)?reflect|java_method)\b|\busing\s*r?['\"]")
_COMMENT = re.compile(r"(?s)/\*.*?\*/|--[^\n]*")
_PLACE = re.compile(r"[/\\:]")
# As Spark is asked for the files of a place: text.`/place`.
_PLACE_IN_TEXT = re.compile(r"\.\s*`[^`]*[/\\:][^`]*`")
_NO_PLACES = "a table is served by its name in the lake, not by a path or a LOCATION"


def refusal(text: str, statements: Sequence[Statement]) -> str | None:
    """Why a script, parsed into `statements`, isn't carried out; None where it may be."""
    text = _COMMENT.sub(" ", text)
    if _PLACE_IN_TEXT.search(text):
        return _NO_PLACES
    if _BEYOND.search(text):
        return "reflect, java_method and USING 'program' run code on the server, and aren't served"
    told = (_refusal_of(part) for statement in statements for part in parts_of(statement))
    return next((reason for reason in told if reason is not None), None)


def _refusal_of(part: object) -> str | None:
    if type(part) in NOT_SERVED:
        return (
            f"{words_of(part)} isn't served: it reaches beyond the lake's tables, or changes what "  # type: ignore[arg-type]
            "all callers share"
        )
    is_place = isinstance(part, TablePath) or getattr(part, "location", None) is not None
    if is_place or (isinstance(part, TableName) and any(map(_PLACE.search, part.parts))):
        return _NO_PLACES
    return None


def parts_of(part: object) -> Iterator[object]:
    """A statement and all that it is made of."""
    yield part
    if isinstance(part, Mapping):
        for one in part.values():
            yield from parts_of(one)
    elif isinstance(part, tuple | list | frozenset):
        for one in part:
            yield from parts_of(one)
    elif dataclasses.is_dataclass(part):
        for item in dataclasses.fields(part):
            yield from parts_of(getattr(part, item.name))
