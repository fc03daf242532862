"""The messages of Flight and Flight SQL, made of a list of their fields.

No maintained package has them for the Protobuf of today, and generated code would be bound to the
release that generated it. They live in a pool of their own: another package may register the same
names. Source: Arrow's Flight.proto and FlightSql.proto. A field is `name=number kind`, with `?`
where its presence counts and `*` where it repeats; `map` is one from texts. Enumerations are int32,
which they are on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage

from txlake.errors import InvalidRequest
from txlake.server.api_errors import ApiError

_FLIGHT = "arrow.flight.protocol"
_SQL = f"{_FLIGHT}.sql"
_ANY = "type.googleapis.com/"

_FLIGHT_FIELDS = {
    "Empty": "",
    "HandshakeRequest": "protocol_version=1 uint64, payload=2 bytes",
    "HandshakeResponse": "protocol_version=1 uint64, payload=2 bytes",
    "Criteria": "expression=1 bytes",
    "Action": "type=1 string, body=2 bytes",
    "ActionType": "type=1 string, description=2 string",
    "Result": "body=1 bytes",
    "FlightDescriptor": "type=1 int32, cmd=2 bytes, path=3 string*",
    "Ticket": "ticket=1 bytes",
    "Location": "uri=1 string",
    "FlightEndpoint": "ticket=1 Ticket, location=2 Location*, app_metadata=4 bytes",
    "FlightInfo": (
        "schema=1 bytes, flight_descriptor=2 FlightDescriptor, endpoint=3 FlightEndpoint*, "
        "total_records=4 int64, total_bytes=5 int64, ordered=6 bool, app_metadata=7 bytes"
    ),
    "SchemaResult": "schema=1 bytes",
    "FlightData": (
        "flight_descriptor=1 FlightDescriptor, data_header=2 bytes, app_metadata=3 bytes, "
        "data_body=1000 bytes"
    ),
    "PutResult": "app_metadata=1 bytes",
    "CancelFlightInfoRequest": "info=1 FlightInfo",
    "CancelFlightInfoResult": "status=1 int32",
    "StringListValue": "values=1 string*",
    "SessionOptionValue": (
        "string_value=1 string?, bool_value=2 bool?, int64_value=3 sfixed64?, "
        "double_value=4 double?, string_list_value=5 StringListValue"
    ),
    "SessionOptionError": "value=1 int32",
    "SetSessionOptionsRequest": "session_options=1 SessionOptionValue map",
    "SetSessionOptionsResult": "errors=1 SessionOptionError map",
    "GetSessionOptionsRequest": "",
    "GetSessionOptionsResult": "session_options=1 SessionOptionValue map",
    "CloseSessionRequest": "",
    "CloseSessionResult": "status=1 int32",
}
_SQL_FIELDS = {
    "CommandGetSqlInfo": "info=1 uint32*",
    "CommandGetXdbcTypeInfo": "data_type=1 int32?",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog=1 string?, db_schema_filter_pattern=2 string?",
    "CommandGetTables": (
        "catalog=1 string?, db_schema_filter_pattern=2 string?, table_name_filter_pattern=3 "
        "string?, table_types=4 string*, include_schema=5 bool"
    ),
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": "catalog=1 string?, db_schema=2 string?, table=3 string",
    "CommandGetExportedKeys": "catalog=1 string?, db_schema=2 string?, table=3 string",
    "CommandGetImportedKeys": "catalog=1 string?, db_schema=2 string?, table=3 string",
    "CommandGetCrossReference": (
        "pk_catalog=1 string?, pk_db_schema=2 string?, pk_table=3 string, fk_catalog=4 string?, "
        "fk_db_schema=5 string?, fk_table=6 string"
    ),
    "ActionCreatePreparedStatementRequest": "query=1 string, transaction_id=2 bytes?",
    "ActionCreatePreparedStatementResult": (
        "prepared_statement_handle=1 bytes, dataset_schema=2 bytes, parameter_schema=3 bytes"
    ),
    "ActionClosePreparedStatementRequest": "prepared_statement_handle=1 bytes",
    "ActionBeginTransactionRequest": "",
    "ActionBeginTransactionResult": "transaction_id=1 bytes",
    "ActionEndTransactionRequest": "transaction_id=1 bytes, action=2 int32",
    "ActionBeginSavepointRequest": "transaction_id=1 bytes, name=2 string",
    "ActionBeginSavepointResult": "savepoint_id=1 bytes",
    "ActionEndSavepointRequest": "savepoint_id=1 bytes, action=2 int32",
    "ActionCancelQueryRequest": "info=1 bytes",
    "ActionCancelQueryResult": "result=1 int32",
    "CommandStatementQuery": "query=1 string, transaction_id=2 bytes?",
    "TicketStatementQuery": "statement_handle=1 bytes",
    "CommandPreparedStatementQuery": "prepared_statement_handle=1 bytes",
    "CommandStatementUpdate": "query=1 string, transaction_id=2 bytes?",
    "CommandPreparedStatementUpdate": "prepared_statement_handle=1 bytes",
    "DoPutUpdateResult": "record_count=1 int64",
    "DoPutPreparedStatementResult": "prepared_statement_handle=1 bytes?",
    "TableDefinitionOptions": "if_not_exist=1 int32, if_exists=2 int32",
    "CommandStatementIngest": (
        "table_definition_options=1 TableDefinitionOptions, table=2 string, schema=3 string?, "
        "catalog=4 string?, temporary=5 bool, transaction_id=6 bytes?, options=1000 string map"
    ),
}

_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "sfixed64": _Field.TYPE_SFIXED64,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


def _add_field(message: Any, text: str, package: str) -> None:  # noqa: ANN401
    """Add a field, as the module describes it, to a message's description."""
    name, number, kind, *rest = text.replace("=", " ").split()
    field = message.field.add(name=name, number=int(number))
    is_map, is_many = rest == ["map"], kind.endswith("*")
    field.label = _Field.LABEL_REPEATED if is_many or is_map else _Field.LABEL_OPTIONAL
    if is_map:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        _set_kind(
            entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), kind, package
        )
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{entry.name}"
        return
    _set_kind(field, kind.rstrip("?*"), package)
    if kind.endswith("?"):
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def _set_kind(field: Any, kind: str, package: str) -> None:  # noqa: ANN401
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


def _classes() -> Iterator[tuple[str, Any]]:
    """Yield the messages' names and classes."""
    pool = descriptor_pool.DescriptorPool()
    for package, messages in ((_FLIGHT, _FLIGHT_FIELDS), (_SQL, _SQL_FIELDS)):
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto", package=package, syntax="proto3"
        )
        for name, fields in messages.items():
            message = file.message_type.add(name=name)
            for text in filter(None, fields.split(", ")):
                _add_field(message, text, package)
        pool.Add(file)
        for name in messages:
            found = pool.FindMessageTypeByName(f"{package}.{name}")
            yield name, message_factory.GetMessageClass(found)


Message = Any
"""A message, whose class is made while the program runs."""
_MADE = dict(_classes())


def new(name: str, /, **fields: object) -> Message:
    """Return a message of the type with this name."""
    return _MADE[name](**fields)


def decoded(name: str, content: bytes) -> Message:
    """Return the message of a type that bytes hold. Raises InvalidRequest if they don't."""
    try:
        return _MADE[name].FromString(content)
    except Exception as error:  # of Protobuf, whose class depends on its implementation
        raise InvalidRequest(f"expected the message {name}: {error}") from error


def decoder(name: str) -> Any:  # noqa: ANN401
    """Return the function that makes a message of a type from bytes."""
    return _MADE[name].FromString


def packed(name: str, /, **fields: object) -> bytes:
    """Return a message of Flight SQL in an Any, as its commands and actions are sent."""
    value = new(name, **fields).SerializeToString()
    return bytes(AnyMessage(type_url=f"{_ANY}{_SQL}.{name}", value=value).SerializeToString())


def unpacked(content: bytes) -> tuple[str, Message]:
    """Return the name and the message of Flight SQL that an Any holds.

    Raises InvalidRequest for anything else, and ApiError (501) for a message that isn't known.
    """
    try:
        held = AnyMessage.FromString(content)
    except Exception as error:  # as in `decoded`
        raise InvalidRequest(f"expected a command of Flight SQL: {error}") from error
    package, _, name = held.type_url.rpartition("/")[2].rpartition(".")
    if package != _SQL or not name:
        raise InvalidRequest(f"expected a command of Flight SQL, found {held.type_url!r:.200}")
    if name not in _SQL_FIELDS:
        raise ApiError("NotImplementedException", f"this server doesn't have {name}")
    return name, decoded(name, held.value)
