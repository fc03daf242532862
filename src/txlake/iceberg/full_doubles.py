"""Partition values of type DOUBLE in a manifest, with all of their 64 bits.

pyiceberg 0.12 decodes manifests by compiled code that declares a double as C's `float`, so that 0.1
is read as 0.10000000149011612 and 1e300 as infinity. Manifests that are rewritten would keep that.
"""

from __future__ import annotations

import struct

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader, OptionReader, Reader, StructReader
from pyiceberg.io import InputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    ManifestEntry,
)
from pyiceberg.typedef import Record

_DOUBLE = struct.Struct("<d")
_DATA_FILE = 2  # the field id of an entry's data file


class _FullDoubleReader(DoubleReader):
    """Reads a double from its eight bytes."""

    def read(self, decoder: BinaryDecoder) -> float:
        value: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
        return value


class _Manifest(AvroFile[ManifestEntry]):
    """A manifest's entries, in which doubles are read in full."""

    def __enter__(self) -> AvroFile[ManifestEntry]:
        super().__enter__()
        self.reader = _with_full_doubles(self.reader)
        return self


def full_partitions(file: InputFile) -> dict[str, Record]:
    """Return the partitions of a manifest's entries by the location of their data files."""
    schema = MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]
    with _Manifest(file, schema, {-1: ManifestEntry, _DATA_FILE: DataFile}) as entries:
        return {entry.data_file.file_path: entry.data_file.partition for entry in entries}


def _with_full_doubles(reader: Reader) -> Reader:
    """Return a reader of the same values, except for its doubles."""
    match reader:
        case DoubleReader():
            return _FullDoubleReader()  # type: ignore[no-untyped-call]
        case OptionReader():
            return OptionReader(_with_full_doubles(reader.option))
        case StructReader():
            fields = tuple((place, _with_full_doubles(one)) for place, one in reader.field_readers)
            return StructReader(fields, reader.create_struct, reader.struct)
        case _:
            return reader
