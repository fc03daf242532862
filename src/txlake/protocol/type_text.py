"""Types as SQL writes them: `decimal(10,2)`, `struct<a: int COMMENT 'x', b: array<string>>`.

Owns the parsing of Spark's DDL type texts and their formatting in Spark's two forms: the short one
of DESCRIBE (`struct<a:int>`) and the one of SHOW CREATE TABLE (`STRUCT<a: INT>`). Fixed-length and
bounded texts (`char(n)`, `varchar(n)`) are stored as Delta Spark stores them: as strings, with the
declared type in the field's metadata.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.protocol.collations import collated_type, collation_of
from txlake.protocol.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    type_from_json,
)

CHAR_VARCHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
COMMENT = "comment"
DECIMAL_PRECISION_MAX = 38

_NAMES = {
    "string": "string",
    "text": "string",
    "bigint": "long",
    "long": "long",
    "int": "integer",
    "integer": "integer",
    "smallint": "short",
    "short": "short",
    "tinyint": "byte",
    "byte": "byte",
    "float": "float",
    "real": "float",
    "double": "double",
    "boolean": "boolean",
    "bool": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "variant": "variant",
    "void": "void",
    "null": "void",
}
_SHORT = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = {"char": "char", "character": "char", "varchar": "varchar"}
_TOKEN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<word>[^\W\d][\w$-]*|\d+)|(?P<sign><>|[<>(),:-]))"
)
_SHOWN_MAX = 80


def parse_type(text: str, *, zoned: bool = True) -> DataType:
    """Return the type of a DDL text; its JSON form (`"integer"`, `{"type": ...}`) is accepted too.

    `zoned`: whether TIMESTAMP is the type with a time zone, TIMESTAMP_LTZ; else TIMESTAMP_NTZ.
    `char(n)` and `varchar(n)` are returned as such; `stored_field` makes them storable. In the JSON
    form any text names a primitive type, and `zoned` doesn't count.

    Raises:
        InvalidRequest: the text is no type, or names in DDL one that Delta tables can't hold.
        UnsupportedFeature: a collation, a geometry or a geography in DDL.
    """
    if text.lstrip().startswith(("{", '"')):
        try:
            return type_from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(f"{text[:_SHOWN_MAX]!r} is no data type: {error}") from error
    reader = _Reader(text, zoned=zoned)
    found = reader.type()
    reader.end()
    return found


def parse_columns(text: str) -> Struct:
    """Return the columns of a DDL list such as `a INT NOT NULL, b STRING COMMENT 'x'`.

    Raises InvalidRequest, or UnsupportedFeature for a collation, a geometry or a geography.
    """
    reader = _Reader(text)
    fields = reader.fields()
    reader.end()
    return Struct(fields)


@dataclass(slots=True)
class _Reader:
    """A recursive-descent parser of one text."""

    source: str
    position: int = 0
    zoned: bool = True

    def error(self, expected: str) -> InvalidRequest:
        """Return the error that something else was expected here."""
        rest = self.source[self.position :].lstrip()
        place = len(self.source) - len(rest) + 1
        found = repr(rest.rstrip()[:20]) if rest else "the end"
        return InvalidRequest(
            f"{self.source[:_SHOWN_MAX]!r} is no data type: expected {expected} at character "
            f"{place}, found {found}"
        )

    def peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.source, self.position)

    def take(self, *wanted: str) -> bool:
        """Consume the tokens, words in any letter case, if they all come next. Return whether they
        did; else nothing is consumed.
        """
        start = self.position
        for text in wanted:
            token = self.peek()
            if token is None or token["quoted"] is not None or token[0].strip().lower() != text:
                self.position = start
                return False
            self.position = token.end()
        return True

    def expect(self, text: str) -> None:
        """Consume this token, a word in any letter case.

        Raises InvalidRequest if another one comes next.
        """
        if not self.take(text):
            # `>>` of nested types is two signs; nothing else needs splitting.
            raise self.error(repr(text))

    def end(self) -> None:
        if self.source[self.position :].strip():
            raise self.error("the end")

    def name(self) -> str:
        """Consume a name, in backquotes or a plain word, and return it.

        Raises InvalidRequest if none is next.
        """
        token = self.peek()
        if token is None or (token["quoted"] is None and token["word"] is None):
            raise self.error("a name")
        self.position = token.end()
        quoted = token["quoted"]
        return quoted.replace("``", "`") if quoted is not None else token["word"]

    def number(self) -> int:
        """Consume a whole number, with or without a minus sign, and return it.

        Raises InvalidRequest if none is next.
        """
        negative = self.take("-")
        token = self.peek()
        if token is None or token["word"] is None or not token["word"].isdigit():
            raise self.error("a number")
        self.position = token.end()
        return -int(token["word"]) if negative else int(token["word"])

    def text(self) -> str:
        """Consume a text in single or double quotes, and return its value.

        Raises InvalidRequest if none is next.
        """
        token = self.peek()
        if token is None or token["text"] is None:
            raise self.error("a text in quotes")
        self.position = token.end()
        quote, body = token["text"][0], token["text"][1:-1]
        body = body.replace(quote * 2, quote) if quote == "'" else body
        return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), body)

    def fields(self) -> tuple[Field, ...]:
        """Parse fields with commas between them."""
        fields = [self.field()]
        while self.take(","):
            fields.append(self.field())
        return tuple(fields)

    def field(self) -> Field:
        """Parse a name, an optional colon and a type, then NOT NULL and COMMENT in any order."""
        name = self.name()
        self.take(":")
        found = Field(name, self.type())
        while True:
            if self.take("not", "null"):
                found = replace(found, nullable=False)
            elif self.take("comment"):
                found = replace(found, metadata={**found.metadata, COMMENT: self.text()})
            else:
                return found

    def type(self) -> DataType:
        """Parse a type.

        Raises InvalidRequest, or UnsupportedFeature for a collation, a geometry or a geography.
        """
        start = self.position
        word = self.name().lower()
        if word == "array":
            self.expect("<")
            element = self.type()
            self.expect(">")
            return Array(element)
        if word == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return Map(key, value)
        if word == "struct":
            if self.take("<>") or self.take("<", ">"):
                return Struct(())
            self.expect("<")
            fields = self.fields()
            self.expect(">")
            return Struct(fields)
        return self.primitive(word, start)

    def primitive(self, word: str, start: int) -> Primitive:
        """Parse the rest of a primitive type after its name `word`, which began at `start`.

        Raises as `type`.
        """
        arguments: list[int] = []
        if word in _DECIMALS or word in _TEXTS:
            if self.take("("):
                arguments.append(self.number())
                while self.take(","):
                    arguments.append(self.number())
                self.expect(")")
            if word in _DECIMALS:
                return self.decimal(arguments)
            if len(arguments) != 1 or arguments[0] < 1:
                raise InvalidRequest(
                    f"{self.source[:_SHOWN_MAX]!r}: {word} needs one length of 1 or more, "
                    f"as in {word}(10)"
                )
            return Primitive(f"{_TEXTS[word]}({arguments[0]})")
        name = "timestamp_ntz" if word == "timestamp" and not self.zoned else _NAMES.get(word)
        if name is None:
            self.position = start
            if word == "interval":
                raise InvalidRequest(
                    f"{self.source[:_SHOWN_MAX]!r}: a Delta table can't hold intervals; store a "
                    "number of units, or a text"
                )
            if word in ("geometry", "geography"):
                raise UnsupportedFeature(
                    f"{self.source[:_SHOWN_MAX]!r}: {word} needs the table feature geospatial, "
                    "which txlake doesn't write; store the shape as BINARY, in its well-known "
                    "binary form"
                )
            raise self.error("a data type that Delta tables hold")
        if name == "string" and self.take("collate"):
            collation = self.name()
            if collation.upper() != "UTF8_BINARY":
                raise UnsupportedFeature(
                    f"{self.source[:_SHOWN_MAX]!r}: collation {collation} needs the table feature "
                    "collations, which txlake doesn't write; leave COLLATE out"
                )
        return Primitive(name)

    def decimal(self, arguments: list[int]) -> Primitive:
        """Return the decimal of a precision and a scale, 10 and 0 by default.

        Raises InvalidRequest for numbers that no decimal has.
        """
        precision, scale = (*arguments, 0)[:2] if arguments else (10, 0)
        if (
            len(arguments) > 2
            or not 1 <= precision <= DECIMAL_PRECISION_MAX
            or not (0 <= scale <= precision)
        ):
            raise InvalidRequest(
                f"{self.source[:_SHOWN_MAX]!r}: expected decimal(precision, scale) with a "
                f"precision of 1 to {DECIMAL_PRECISION_MAX} and a scale of 0 to the precision"
            )
        return Primitive(f"decimal({precision},{scale})")


def short_text(data_type: DataType) -> str:
    """Return the type as DESCRIBE shows it: `struct<a:int,b:array<string>>`."""
    match data_type:
        case Primitive(name):
            decimal = data_type.decimal
            return _SHORT.get(name, name) if decimal is None else "decimal({},{})".format(*decimal)
        case Array(element, _):
            return f"array<{short_text(element)}>"
        case Map(key, value, _):
            return f"map<{short_text(key)},{short_text(value)}>"
        case Struct(fields):
            return f"struct<{','.join(f'{item.name}:{short_text(item.type)}' for item in fields)}>"


def sql_text(data_type: DataType) -> str:
    """Return the type as a DDL statement writes it: `STRUCT<a: INT NOT NULL COMMENT 'x'>`."""
    match data_type:
        case Primitive():
            collation = collation_of(data_type)
            text = short_text(data_type).upper()
            return text if collation is None else f"STRING COLLATE {collation}"
        case Array(element, _):
            return f"ARRAY<{sql_text(element)}>"
        case Map(key, value, _):
            return f"MAP<{sql_text(key)}, {sql_text(value)}>"
        case Struct(fields):
            return f"STRUCT<{', '.join(_sql_member(item) for item in fields)}>"


def _sql_member(item: Field) -> str:
    """Return a struct's field as a DDL statement writes it."""
    comment = item.metadata.get(COMMENT)
    return (
        f"{quoted_name(item.name)}: {sql_text(item.type)}"
        + ("" if item.nullable else " NOT NULL")
        + (f" COMMENT {quoted_text(comment)}" if isinstance(comment, str) else "")
    )


def quoted_name(name: str) -> str:
    """Return a name in backquotes, unless it is a plain word; a keyword counts as one."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    return "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """Return a text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def stored_field(item: Field) -> Field:
    """Return the field as the log holds it: char and varchar as string, with the declared type
    kept.
    """
    stored = _stored(item.type)
    if stored == item.type:
        return item
    metadata = dict(item.metadata)
    if _has_bounded_text(item.type):
        metadata[CHAR_VARCHAR_TYPE] = short_text(item.type)
    return replace(item, type=stored, metadata=metadata)


def declared_type(item: Field) -> DataType:
    """Return the type that the field was declared with: char, varchar and collations included.

    The stored type where the declaration can't be parsed.
    """
    text = item.metadata.get(CHAR_VARCHAR_TYPE)
    if not isinstance(text, str):
        return collated_type(item)
    try:
        return parse_type(text)
    except InvalidRequest:
        return item.type


def _stored(data_type: DataType) -> DataType:
    """Return the type with char and varchar as string; a struct's fields keep theirs in their
    metadata.
    """
    match data_type:
        case Primitive():
            return Primitive("string") if _is_bounded_text(data_type) else data_type
        case Array(element, contains_null):
            return Array(_stored(element), contains_null)
        case Map(key, value, contains_null):
            return Map(_stored(key), _stored(value), contains_null)
        case Struct(fields):
            return Struct(tuple(stored_field(item) for item in fields))


def _has_bounded_text(data_type: DataType) -> bool:
    """Return whether the type has a char or varchar outside of structs, whose fields keep their
    own.
    """
    match data_type:
        case Primitive():
            return _is_bounded_text(data_type)
        case Array(element, _):
            return _has_bounded_text(element)
        case Map(key, value, _):
            return _has_bounded_text(key) or _has_bounded_text(value)
        case Struct():
            return False


def _is_bounded_text(data_type: Primitive) -> bool:
    return data_type.name.startswith(("char(", "varchar("))
