"""Thrift's compact protocol, as far as Parquet's headers and footers need it.

Owns reading a struct's fields and their byte ranges, so that a few can be changed and all others,
unknown ones too, are kept. Source: Apache Thrift, "Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LIST, STRUCT = 9, 12
_DEPTH_MAX = 8

Fields = dict[int, object]
"""A struct's values by field number; None for values other than numbers, booleans and structs."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a struct: its number, the kind of its value, and the value's bytes."""

    number: int
    kind: int
    data: bytes


def read_fields(data: bytes, start: int, depth: int = 0) -> tuple[Fields, int]:
    """Return the struct at `start`, and the position after it.

    Raises ValueError for bytes that are no struct, or end too early.
    """
    if depth > _DEPTH_MAX:
        raise ValueError("a Thrift struct is nested too deeply")
    fields: Fields = {}
    place = 0
    try:
        while kind := data[start]:
            start += 1
            if kind >> 4:
                place += kind >> 4
            else:
                place, start = read_signed(data, start)
            fields[place], start = _value(data, start, kind & 15, depth)
    except IndexError as error:
        raise ValueError("a Thrift struct ends too early") from error
    return fields, start + 1


def read_parts(data: bytes, start: int = 0) -> tuple[list[Part], int]:
    """Return the struct's fields undecoded, in order, and the position after it.

    Raises ValueError for bytes that are no struct, or end too early.
    """
    parts: list[Part] = []
    place = 0
    try:
        while kind := data[start]:
            start += 1
            if kind >> 4:
                place += kind >> 4
            else:
                place, start = read_signed(data, start)
            _, end = _value(data, start, kind & 15, 0)
            parts.append(Part(place, kind & 15, data[start:end]))
            start = end
    except IndexError as error:
        raise ValueError("a Thrift struct ends too early") from error
    return parts, start + 1


def write_parts(parts: Iterable[Part]) -> bytes:
    """Return the bytes of a struct with these fields, which are sorted by number."""
    written = bytearray()
    place = 0
    for part in parts:
        step = part.number - place
        if 0 < step < 16:
            written.append(step << 4 | part.kind)
        else:
            written.append(part.kind)
            written += write_unsigned(part.number << 1 ^ part.number >> 63)
        written += part.data
        place = part.number
    written.append(0)
    return bytes(written)


def read_list(data: bytes) -> tuple[int, list[bytes]]:
    """Return the kind of a list's elements and the bytes of each.

    Raises ValueError for bytes that are no list, or end too early.
    """
    try:
        size, kind, start = data[0] >> 4, data[0] & 15, 1
        if size == 15:
            size, start = read_unsigned(data, start)
        elements = []
        for _ in range(size):
            _, end = _value(data, start, kind, 0)
            elements.append(data[start:end])
            start = end
    except IndexError as error:
        raise ValueError("a Thrift list ends too early") from error
    return kind, elements


def write_list(kind: int, elements: list[bytes]) -> bytes:
    """Return the bytes of a list with these elements."""
    size = len(elements)
    head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + write_unsigned(size)
    return head + b"".join(elements)


def read_unsigned(data: bytes, start: int) -> tuple[int, int]:
    """Return the number at `start`, and the position after it. Raises ValueError, IndexError."""
    value = shift = 0
    while True:
        byte = data[start]
        value |= (byte & 127) << shift
        start += 1
        if byte < 128:
            return value, start
        shift += 7
        if shift > 63:
            raise ValueError("a Thrift number has no end")


def read_signed(data: bytes, start: int) -> tuple[int, int]:
    """Return the signed number at `start`, and the position after it. Raises ValueError,
    IndexError.
    """
    value, start = read_unsigned(data, start)
    return (value >> 1) ^ -(value & 1), start


def write_unsigned(value: int) -> bytes:
    """Return the bytes of a number, which must not be negative."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _value(data: bytes, start: int, kind: int, depth: int) -> tuple[object, int]:
    """Return the value of this kind at `start`, None for kinds that `Fields` leaves out, and the
    position after it.

    Raises ValueError for an unknown kind, IndexError at the end of the data.
    """
    match kind:
        case 1 | 2:
            return kind == 1, start
        case 3:
            return data[start], start + 1
        case 4 | 5 | 6:
            return read_signed(data, start)
        case 7:
            return None, start + 8
        case 8:
            length, start = read_unsigned(data, start)
            return None, start + length
        case 9 | 10:
            size = data[start] >> 4
            inner, start = data[start] & 15, start + 1
            if size == 15:
                size, start = read_unsigned(data, start)
            for _ in range(size):
                _, start = _value(data, start, inner, depth + 1)
            return None, start
        case 12:
            return read_fields(data, start, depth + 1)
        case _:
            raise ValueError(f"a Thrift struct has a field of kind {kind}")
