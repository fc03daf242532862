"""The options of a session that a client keeps by a cookie: `catalog`, `schema` and `isolation`.

Source: Arrow's Flight.proto, `SetSessionOptionsRequest`.
"""

from __future__ import annotations

from txlake.conflict.levels import parse_level
from txlake.errors import InvalidRequest
from txlake.server.calls import ServedLake
from txlake.server.flight.messages import Message, new
from txlake.server.flight.statements import use_database
from txlake.session.session import Session

_INVALID_NAME, _INVALID_VALUE = 1, 2


def set_options(served: ServedLake, session: Session, request: Message) -> bytes:
    """Set the options of a session, each by itself, and return the answer, which has the errors."""
    answer = new("SetSessionOptionsResult")
    for name, value in request.session_options.items():
        text = value.string_value if value.HasField("string_value") else None
        if name not in ("catalog", "schema", "isolation"):
            answer.errors[name].value = _INVALID_NAME
            continue
        try:
            _set(served, session, name, text)
        except InvalidRequest:
            answer.errors[name].value = _INVALID_VALUE
    return bytes(answer.SerializeToString())


def _set(served: ServedLake, session: Session, name: str, text: str | None) -> None:
    """Set one option. Raises InvalidRequest for a value that it can't have."""
    if name == "isolation":
        session.level = None if text is None else parse_level(text)
    elif text is None:
        raise InvalidRequest(f"{name}: expected a text")
    elif name == "schema":
        use_database(session, text)
    elif text.lower() not in served.catalog_names:
        raise InvalidRequest(f"there is no catalog {text!r} here; this is {served.catalog_name!r}")


def get_options(served: ServedLake, session: Session) -> bytes:
    """Return the answer with the options of a session."""
    answer = new("GetSessionOptionsResult")
    answer.session_options["catalog"].string_value = served.catalog_name
    answer.session_options["schema"].string_value = session.database
    if session.level is not None:
        answer.session_options["isolation"].string_value = session.level.value
    return bytes(answer.SerializeToString())
