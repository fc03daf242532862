"""COPY INTO in Fabric's words: what WITH (FILE_TYPE = ...) says of files, as options of Spark's.

Options as Microsoft Learn has them in "COPY INTO (Transact-SQL)". What would be accepted without
being done is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from txlake.errors import InvalidRequest
from txlake.sql.cursor import Cursor
from txlake.sql.tokens import Kind, Token
from txlake.statements import CopyInto

_CREDENTIAL = (
    "COPY INTO ... WITH (CREDENTIAL = ...): a statement carries no credentials; give them to "
    "txlake.connect as storage_options, and leave CREDENTIAL out"
)
_OF_CSV = ("FIRSTROW", "FIELDTERMINATOR", "ROWTERMINATOR", "FIELDQUOTE", "ENCODING")
_REFUSED = {
    "ERRORFILE": "rejected rows are kept nowhere: the first one ends the statement",
    "REJECTED_ROW_LOCATION": "rejected rows are kept nowhere: the first one ends the statement",
    "COMPRESSION": "a file's ending says how it is compressed (.gz); leave COMPRESSION out",
    "DATEFORMAT": "dates are read as Spark's CAST reads them: yyyy-MM-dd",
    "IDENTITY_INSERT": "a table here has no identity columns",
    "PARSER_VERSION": "there is one parser; leave PARSER_VERSION out",
    "MATCH_COLUMN_COUNT": "the number of fields must always be that of the columns; leave it out",
    "AUTO_CREATE_TABLE": "COPY INTO makes no table; CREATE TABLE comes first",
    "FILE_FORMAT": "say FILE_TYPE = 'CSV', 'PARQUET' or 'JSONL' instead",
}
_ENCODINGS = {"UTF8": "UTF-8", "UTF16": "UTF-16"}
_NEWLINES = frozenset({"\n", "\r\n", "\r"})
# Told apart from a field that is empty in quotes.
_NO_FIELD = "\0"


def copy_options(cursor: Cursor, statement: CopyInto) -> CopyInto:
    """`(name = value, ...)` after WITH. Fabric copies a file as often as it is told to.

    Raises InvalidRequest for an option or a value that can't be followed.
    """
    given: dict[str, tuple[str, Token]] = {}
    cursor.enclosed(lambda: _option(cursor, given))
    cursor.expect_end()
    kind, place = given.pop("FILE_TYPE", ("CSV", cursor.first))
    errors, at = given.pop("MAXERRORS", ("0", cursor.first))
    if errors != "0":
        cursor.refuse("MAXERRORS is 0 here: the first row that doesn't fit ends the statement", at)
    statement = replace(statement, copy_options=(("force", "true"),), fields=statement.fields or ())
    if kind.upper() == "CSV":
        return _csv(cursor, statement, given)
    if kind.upper() not in {"PARQUET", "JSONL"}:
        cursor.refuse(f"FILE_TYPE is 'CSV', 'PARQUET' or 'JSONL', found {kind!r}", place)
    for name, (_, found) in given.items():
        cursor.refuse(f"{name} goes with FILE_TYPE = 'CSV'", found)
    if kind.upper() == "PARQUET":
        return replace(statement, file_format="PARQUET", by_position=statement.columns is not None)
    if statement.fields:
        cursor.refuse("a JSONL file has names, no numbers of fields: leave the numbers out", place)
    exact = (("mode", "FAILFAST"), ("prefersDecimal", "true"))
    return replace(statement, file_format="JSON", format_options=exact)


def _option(cursor: Cursor, given: dict[str, tuple[str, Token]]) -> None:
    place = cursor.token
    name = cursor.name("an option, such as FILE_TYPE").upper()
    if name in {"CREDENTIAL", "ERRORFILE_CREDENTIAL", "REJECTED_ROW_LOCATION_CREDENTIAL"}:
        raise InvalidRequest(_CREDENTIAL)  # whose text shows no secret
    if name in _REFUSED:
        cursor.refuse(f"{name}: {_REFUSED[name]}", place)
    if name not in {"FILE_TYPE", "MAXERRORS", *_OF_CSV}:
        known = ", ".join(("FILE_TYPE", "MAXERRORS", *_OF_CSV))
        cursor.refuse(f"{name} is no option of COPY INTO; there are {known}", place)
    if name in given:
        cursor.refuse(f"{name} is given twice", place)
    cursor.expect("=")
    found = cursor.token
    if found.kind is Kind.NUMBER:
        given[name] = str(cursor.integer()), found
    else:
        given[name] = cursor.string("a value in quotes, or a number"), found


def _csv(cursor: Cursor, statement: CopyInto, given: Mapping[str, tuple[str, Token]]) -> CopyInto:
    """A file as RFC 4180 has it: a quote in a field is written twice, rows may span lines."""
    start = cursor.first
    first, at = given.get("FIRSTROW", ("1", start))
    if first not in {"1", "2"}:
        cursor.refuse("FIRSTROW is 1, or 2 for files whose first row has the columns' names", at)
    separator = _characters(cursor, *given.get("FIELDTERMINATOR", (",", start)))
    quote, at = given.get("FIELDQUOTE", ('"', start))
    quote = _characters(cursor, quote, at)
    if len(quote) != 1:
        cursor.refuse("FIELDQUOTE is one character", at)
    coding, at = given.get("ENCODING", ("UTF8", start))
    if coding.upper() not in _ENCODINGS:
        cursor.refuse(f"ENCODING is 'UTF8' or 'UTF16', found {coding!r}", at)
    options = {
        "header": "true" if first == "2" else "false",
        "sep": separator,
        "quote": quote,
        "escape": quote,
        "encoding": _ENCODINGS[coding.upper()],
        "multiLine": "true",
        "mode": "FAILFAST",
        "columnPruning": "false",
        "nullValue": _NO_FIELD,
    }
    end, at = given.get("ROWTERMINATOR", ("\n", start))
    end = _characters(cursor, end, at)
    if end not in _NEWLINES:
        if len(end) != 1:
            cursor.refuse("ROWTERMINATOR is '\\n', '\\r\\n' or one other character", at)
        options["lineSep"] = end
    return replace(
        statement, file_format="CSV", by_position=True, format_options=tuple(options.items())
    )


def _characters(cursor: Cursor, text: str, place: Token) -> str:
    """A separator as it was given, or in hexadecimal: `0x0D0A`. Never empty."""
    if text[:2].lower() == "0x":
        try:
            text = bytes.fromhex(text[2:]).decode("ascii")
        except ValueError:
            cursor.refuse(f"{text!r} is no ASCII text in hexadecimal", place)
    if not text or "\\" in text:
        cursor.refuse("a separator is one or more characters, and no backslash", place)
    return text
