"""Credentials that a Unity Catalog lends for a table's files, as our stores' options are named.

Owns for how long they are used. Who gives credentials of their own is lent none. Source: Unity
Catalog's Delta API, "Credentials".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from txlake.errors import InvalidRequest
from txlake.ports import Store
from txlake.storage import local_path, open_store
from txlake.unity.answers import Credentials
from txlake.unity.client import Declined
from txlake.unity.ledger import UnityLedger

_OPERATIONS = ("READ_WRITE", "READ")
_EARLIER_MS = 300_000
_NEVER_MS = 2**62
_NAMES = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "azure.sas-token": "azure_storage_sas_token",
}
_OWN = ("access_key", "secret", "token", "account_key", "sas", "service_account", "skip_signature")


class Lending:
    """What is lent at each place, as long as it is good. Threads may share it."""

    def __init__(self, ledger: UnityLedger, options: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._options = dict(options)
        self._has_own = any(word in key.lower() for key in options for word in _OWN)
        self._lent: dict[str, tuple[Mapping[str, str], int]] = {}

    def options(self, location: str) -> Mapping[str, str]:
        """The storage options at a place: the user's, and what is lent there.

        Raises InvalidRequest where nothing is lent that our stores can use, Unavailable.
        """
        if self._has_own or local_path(location) is not None or location.startswith("memory:"):
            return self._options
        table_id = self._ledger.table_at(location)
        if table_id is None:
            return self._options
        known = self._lent.get(table_id)
        if known is None or known[1] - _EARLIER_MS < self._ledger.system.now_ms():
            known = self._asked(table_id)
            self._lent[table_id] = known
        return {**self._options, **known[0]}

    def store(self, location: str) -> Store:
        """The store at a place, whose credentials are renewed."""
        if self._has_own or local_path(location) is not None:
            return open_store(location, self._options)
        return cast("Store", _Renewed(lambda: open_store(location, self.options(location))))

    def _asked(self, table_id: str) -> tuple[Mapping[str, str], int]:
        refused: Declined | InvalidRequest | None = None
        for operation in _OPERATIONS:  # a token may be one that only reads
            try:
                answer = self._ledger.credentials(table_id, operation)
            except (Declined, InvalidRequest) as error:
                refused = error
                continue
            return _read(answer)
        raise InvalidRequest(
            f"the catalog lends no credentials for table {table_id}; give storage_options: "
            f"{refused}"
        ) from refused


class _Renewed:
    """A Store that is opened again when what it was opened with may be over."""

    def __init__(self, open_: Callable[[], Store]) -> None:
        self._open = open_

    def __getattr__(self, name: str) -> object:
        return getattr(self._open(), name)


def _read(answer: Credentials) -> tuple[Mapping[str, str], int]:
    """The options, and until when they are good. Raises InvalidRequest for other clouds' keys."""
    for lent in answer.storage_credentials:
        options = {_NAMES[key]: text for key, text in lent.config.items() if key in _NAMES}
        if options or not lent.config:
            until_ms = lent.expiration_time_ms
            return options, _NEVER_MS if until_ms is None else until_ms
        raise InvalidRequest(
            f"the catalog lends {', '.join(sorted(lent.config))}, which can't be used here; give "
            "storage_options"
        )
    raise InvalidRequest("the catalog lends no credentials; give storage_options")
