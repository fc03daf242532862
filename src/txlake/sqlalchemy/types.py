"""Types of columns that SQLAlchemy lacks, and the type of each of a lake's columns.

| type here | in the lake | value in Python |
| --- | --- | --- |
| `TINYINT` | `TINYINT` | `int` |
| `TIMESTAMP_NTZ` | `TIMESTAMP_NTZ` | `datetime` without a zone |
| `STRUCT`, `MAP` | `STRUCT<...>`, `MAP<..., ...>` | `dict` |
| `VARIANT` | `VARIANT` | what JSON has |
| `INTERVAL` | `INTERVAL DAY TO SECOND`, in expressions | `timedelta` |

An array is SQLAlchemy's own `ARRAY`, whose value is a list.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import func
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import sqltypes
from sqlalchemy.sql.elements import BindParameter, ColumnElement
from sqlalchemy.types import TypeEngine

from txlake.errors import InvalidRequest
from txlake.protocol.type_text import parse_type
from txlake.protocol.types import Array, DataType, Map, Primitive, Struct
from txlake.sql import sql_literal
from txlake.sql.markers import WallTime

Processor = Callable[[Any], Any]
_BOUNDED = re.compile(r"(varchar|char)\((\d+)\)")


class ArrayOf(sqltypes.ARRAY[Any]):
    """An array, whose elements are bound as its type binds them."""

    def bind_processor(self, dialect: Dialect) -> Processor:
        convert = self.item_type.dialect_impl(dialect).bind_processor(dialect)

        def process(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [process(item) for item in value]
            return value if convert is None else convert(value)

        return process

    def literal_processor(self, dialect: Dialect) -> Processor:
        bound = self.bind_processor(dialect)
        return lambda value: sql_literal(bound(value))


class TINYINT(sqltypes.SmallInteger):
    """A whole number of one byte."""

    __visit_name__ = "TINYINT"


class TIMESTAMP_NTZ(sqltypes.DateTime):  # noqa: N801
    """A date and time of day without a zone."""

    __visit_name__ = "TIMESTAMP_NTZ"


class DateTime(sqltypes.DateTime):
    """A date and time of day, bound as the type of the column that it is for."""

    def bind_processor(self, dialect: Dialect) -> Processor:
        def process(value: Any) -> Any:
            if self.timezone or not isinstance(value, datetime.datetime) or value.tzinfo:
                return value
            return WallTime.combine(value.date(), value.time())

        return process

    def literal_processor(self, dialect: Dialect) -> Processor:
        bound = self.bind_processor(dialect)
        return lambda value: sql_literal(bound(value))


class Binary(sqltypes.LargeBinary):
    """Bytes."""

    def literal_processor(self, dialect: Dialect) -> Processor:
        return sql_literal


class Date(sqltypes.Date):
    """A date; of a datetime its day."""

    def bind_processor(self, dialect: Dialect) -> Processor:
        return lambda value: value.date() if isinstance(value, datetime.datetime) else value

    def literal_processor(self, dialect: Dialect) -> Processor:
        bound = self.bind_processor(dialect)
        return lambda value: sql_literal(bound(value))


class INTERVAL(TypeEngine[datetime.timedelta]):
    """A length of time in an expression; a column can't have it."""

    __visit_name__ = "INTERVAL"

    @property
    def python_type(self) -> type[datetime.timedelta]:
        return datetime.timedelta


class _AsJson(TypeEngine[Any]):
    """A value that travels to the lake as JSON."""

    def bind_processor(self, dialect: Dialect) -> Processor:
        def process(value: object) -> str | None:
            return None if value is None else json.dumps(value, ensure_ascii=False, default=_plain)

        return process

    literal_processor = None  # type: ignore[assignment]


class VARIANT(_AsJson):
    """A value as JSON has them, without a schema."""

    __visit_name__ = "VARIANT"

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return func.parse_json(bindvalue, type_=self)


class TypeText(ColumnElement[str]):
    """A type's SQL text as a literal, which `from_json` takes."""

    __visit_name__ = "txlake_type_text"
    inherit_cache = False
    type = sqltypes.String()

    def __init__(self, described: TypeEngine[Any]) -> None:
        self.described = described


class _Nested(_AsJson):
    """A value with parts, made from JSON by its own type."""

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return func.from_json(bindvalue, TypeText(self), type_=self)


class STRUCT(_Nested):
    """A struct: `STRUCT({"street": String(), "number": Integer()})`.

    Attributes:
        fields: the types by name, in order.
    """

    __visit_name__ = "STRUCT"

    def __init__(self, fields: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]]) -> None:
        self.fields = {name: sqltypes.to_instance(kind) for name, kind in fields.items()}

    @property
    def _static_cache_key(self) -> Any:
        return (
            STRUCT,
            tuple((name, kind._static_cache_key) for name, kind in self.fields.items()),
        )

    def __repr__(self) -> str:
        return f"STRUCT({self.fields!r})"


class MAP(_Nested):
    """A map: `MAP(String(), Integer())`."""

    __visit_name__ = "MAP"

    def __init__(
        self,
        key_type: TypeEngine[Any] | type[TypeEngine[Any]],
        value_type: TypeEngine[Any] | type[TypeEngine[Any]],
    ) -> None:
        self.key_type = sqltypes.to_instance(key_type)
        self.value_type = sqltypes.to_instance(value_type)

    @property
    def _static_cache_key(self) -> Any:
        return (MAP, self.key_type._static_cache_key, self.value_type._static_cache_key)

    def __repr__(self) -> str:
        return f"MAP({self.key_type!r}, {self.value_type!r})"


def _plain(value: object) -> object:
    """Return a value that JSON lacks as text, which the lake reads back."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


_TYPES: Mapping[str, Callable[[], TypeEngine[Any]]] = {
    "string": sqltypes.String,
    "byte": TINYINT,
    "short": sqltypes.SMALLINT,
    "integer": sqltypes.INTEGER,
    "long": sqltypes.BIGINT,
    "float": sqltypes.FLOAT,
    "double": sqltypes.DOUBLE,
    "boolean": sqltypes.BOOLEAN,
    "binary": sqltypes.BINARY,
    "date": sqltypes.DATE,
    "timestamp": lambda: sqltypes.TIMESTAMP(timezone=True),
    "timestamp_ntz": TIMESTAMP_NTZ,
    "variant": VARIANT,
}


def type_of(text: str) -> TypeEngine[Any]:
    """Return the type of a column whose type has this SQL text; NullType for one without a type
    here, as an interval in a view.
    """
    try:
        kind = parse_type(text)
    except InvalidRequest:
        return sqltypes.NullType()
    return _of(kind)


def _of(kind: DataType) -> TypeEngine[Any]:
    match kind:
        case Array(element, _):
            dimensions = 1
            while isinstance(element, Array):
                element, dimensions = element.element, dimensions + 1
            return sqltypes.ARRAY(_of(element), dimensions=dimensions)
        case Map(key, value, _):
            return MAP(_of(key), _of(value))
        case Struct(fields):
            return STRUCT({item.name: _of(item.type) for item in fields})
        case Primitive(name) if kind.decimal is not None:
            precision, scale = kind.decimal
            return sqltypes.DECIMAL(precision, scale)
        case Primitive(name) if found := _BOUNDED.fullmatch(name):
            made = sqltypes.VARCHAR if found[1] == "varchar" else sqltypes.CHAR
            return made(int(found[2]))
        case Primitive(name):
            return _TYPES.get(name, sqltypes.NullType)()
