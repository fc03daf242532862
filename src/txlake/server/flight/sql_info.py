"""What the server is and can do: the tables of GetSqlInfo and GetXdbcTypeInfo.

Source: Arrow's FlightSql.proto, `SqlInfo`, `CommandGetSqlInfo`, `CommandGetXdbcTypeInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from txlake.release import VERSION
from txlake.server.calls import Limits

_KINDS = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.field("item", pa.string()))),
    (
        "int32_to_int32_list_map",
        pa.map_(pa.int32(), pa.list_(pa.field("item", pa.int32()))),
    ),
)
_TEXT, _FLAG, _LONG, _BITS, _TEXTS = range(5)
_VALUE = pa.dense_union([pa.field(name, kind) for name, kind in _KINDS])
SQL_INFO = pa.schema(
    [pa.field("info_name", pa.uint32(), False), pa.field("value", _VALUE, nullable=False)]
)
"""The columns of GetSqlInfo."""

_SAVEPOINTS, _CASE_INSENSITIVE, _NULLS_LOW, _FULL_OUTER_JOINS = 2, 1, 1, 2
# READ UNCOMMITTED to SERIALIZABLE are accepted; the weaker ones get a snapshot.
_LEVELS = 0b11110
_SERIALIZABLE = 4


def _infos(limits: Limits) -> Mapping[int, tuple[int, object]]:
    """Return the number of each fact, with the place of its kind and its value."""
    idle_ms = int(1000 * limits.client_session_idle_s)
    return {
        0: (_TEXT, "txlake"),
        1: (_TEXT, VERSION),
        2: (_TEXT, pa.__version__),
        3: (_FLAG, False),
        4: (_FLAG, True),
        5: (_FLAG, False),
        8: (_BITS, _SAVEPOINTS),
        9: (_FLAG, True),
        10: (_FLAG, True),  # bulk ingestion
        11: (_FLAG, True),  # of several calls in one transaction
        100: (_BITS, 0),
        101: (_BITS, idle_ms),
        500: (_FLAG, False),
        501: (_FLAG, True),
        502: (_FLAG, True),
        503: (_BITS, _CASE_INSENSITIVE),
        504: (_TEXT, "`"),
        505: (_BITS, _CASE_INSENSITIVE),
        506: (_FLAG, True),
        507: (_BITS, _NULLS_LOW),
        513: (_TEXT, "\\"),
        514: (_TEXT, ""),
        515: (_FLAG, True),
        516: (_FLAG, True),
        518: (_FLAG, True),
        519: (_FLAG, False),
        520: (_FLAG, True),
        521: (_FLAG, True),
        522: (_BITS, 0b11),
        523: (_FLAG, True),
        524: (_FLAG, True),
        525: (_BITS, 0b11),
        526: (_BITS, 0b1),
        527: (_FLAG, False),
        528: (_BITS, _FULL_OUTER_JOINS),
        529: (_TEXT, "database"),
        530: (_TEXT, "procedure"),
        531: (_TEXT, "catalog"),
        532: (_FLAG, True),
        536: (_FLAG, False),
        537: (_FLAG, False),
        538: (_BITS, 0b111),
        539: (_FLAG, True),
        540: (_BITS, 0b11),
        562: (_BITS, _SERIALIZABLE),
        563: (_FLAG, True),
        564: (_BITS, _LEVELS),
        565: (_FLAG, False),
        566: (_FLAG, False),
        572: (_FLAG, True),
        573: (_FLAG, True),
        574: (_FLAG, False),
        576: (_FLAG, False),
    }


def sql_info(wanted: Iterable[int], limits: Limits) -> pa.Table:
    """Return the facts of these numbers, all without any; unknown numbers are left out."""
    known = _infos(limits)
    chosen = [number for number in wanted if number in known] if wanted else list(known)
    values: list[list[object]] = [[] for _ in _KINDS]
    kinds, places = [], []
    for number in chosen:
        kind, value = known[number]
        kinds.append(kind)
        places.append(len(values[kind]))
        values[kind].append(value)
    value = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(places, pa.int32()),
        [pa.array(held, kind) for held, (_, kind) in zip(values, _KINDS)],
        [name for name, _ in _KINDS],
    )
    return pa.Table.from_arrays([pa.array(chosen, pa.uint32()), value], schema=SQL_INFO)


TYPE_INFO = pa.schema(
    [
        pa.field("type_name", pa.string(), False),
        pa.field("data_type", pa.int32(), False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), False))),
        pa.field("nullable", pa.int32(), False),
        pa.field("case_sensitive", pa.bool_(), False),
        pa.field("searchable", pa.int32(), False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)
"""The columns of GetXdbcTypeInfo."""

_NULLABLE, _SEARCHABLE = 1, 3
_DATETIME = 9
# Name, type of XDBC, size, quote of literals, base of digits, subcode of date and time.
_TYPES = (
    ("TINYINT", -6, 3, None, 10, None),
    ("BIGINT", -5, 19, None, 10, None),
    ("BINARY", -3, None, "'", None, None),
    ("BOOLEAN", -7, 1, None, None, None),
    ("DECIMAL", 3, 38, None, 10, None),
    ("INT", 4, 10, None, 10, None),
    ("SMALLINT", 5, 5, None, 10, None),
    ("FLOAT", 7, 24, None, 2, None),
    ("DOUBLE", 8, 53, None, 2, None),
    ("STRING", 12, None, "'", None, None),
    ("DATE", 91, 10, "'", None, 1),
    ("TIMESTAMP", 93, 26, "'", None, 3),
    ("TIMESTAMP_NTZ", 93, 26, "'", None, 3),
)


def type_info(wanted: int | None) -> pa.Table:
    """Return the types of columns, or those of one type of XDBC, in the order of their numbers."""
    rows = []
    for name, kind, size, quote, radix, subcode in sorted(_TYPES, key=lambda one: (one[1], one[0])):
        if wanted is not None and kind != wanted:
            continue
        is_number, is_decimal = radix is not None, name == "DECIMAL"
        values = {
            "type_name": name,
            "data_type": kind,
            "column_size": size,
            "literal_prefix": "X'" if name == "BINARY" else quote,
            "literal_suffix": quote,
            "create_params": ["precision", "scale"] if is_decimal else None,
            "nullable": _NULLABLE,
            "case_sensitive": name == "STRING",
            "searchable": _SEARCHABLE,
            "unsigned_attribute": False if is_number else None,
            "fixed_prec_scale": False,
            "auto_increment": False if is_number else None,
            "local_type_name": name,
            "minimum_scale": 0 if is_number else None,
            "maximum_scale": 38 if is_decimal else 0 if is_number else None,
            "sql_data_type": kind if subcode is None else _DATETIME,
            "datetime_subcode": subcode,
            "num_prec_radix": radix,
            "interval_precision": None,
        }
        rows.append(values)
    return pa.Table.from_pylist(rows, TYPE_INFO)
